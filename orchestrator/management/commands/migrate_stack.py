"""`manage.py migrate_stack --to DATABASE_URL`: an embedded installation moves into PostgreSQL."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from orchestrator.management.lock import FolderInUseError, folder_lock
from orchestrator.moving import stacks
from orchestrator.moving.copying import Survey
from orchestrator.moving.errors import MovingError


class Command(BaseCommand):
    help = "Copy the embedded database into an empty PostgreSQL database and compare both."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--to",
            default="",
            help="postgresql://user:password@host:5432/name; else DATABASE_URL is read, which "
            "keeps the password out of the list of processes",
        )
        parser.add_argument("--dry-run", action="store_true", help="read everything, write nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        url = options["to"] or settings.DATABASE_URL
        if not url:
            raise CommandError("Name the target by --to or DATABASE_URL.")
        try:
            with stacks.target_database(url) as target:
                if options["dry_run"]:
                    self._tell_plan(stacks.plan(target, self.say))
                    return
                # Nothing may be written meanwhile, so nothing may run on the folder.
                with folder_lock(settings.DATA_DIR, port=0):
                    done = stacks.move(target, self.say)
        except (MovingError, FolderInUseError) as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(f"The database refused, and nothing was kept: {error}") from error
        self.say(
            f"{done.rows:,} rows in {len(done.tables)} tables were copied and are the same by "
            "number and content."
        )
        self._tell_changed(done)
        self.say(
            "Start everything with STACK=scale, DATABASE_URL, BROKER_URL, and the same data folder "
            f"({settings.DATA_DIR}): files and the secret key stay where they are. The SQLite "
            "file was not touched; keep it until you are satisfied."
        )

    def _tell_plan(self, found: Survey) -> None:
        self.say(
            f"{found.rows:,} rows in {len(found.tables)} tables would be copied; nothing was done."
        )
        self._tell_changed(found)
        if found.misfit_count:
            raise CommandError(
                f"{found.misfit_count} values would not fit: " + "; ".join(found.misfits)
            )

    def _tell_changed(self, found: Survey) -> None:
        for table in found.tables:
            if table.changed:
                self.say(
                    f"{table.name}: {table.changed:,} rows hold NUL or half a surrogate pair, "
                    "which PostgreSQL does not store; they get ␀ or �."
                )

    def say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
