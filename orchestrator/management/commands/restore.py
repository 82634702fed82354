"""`manage.py restore FILE`: a backup into an empty installation."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from orchestrator.management.lock import FolderInUseError, folder_lock
from orchestrator.moving.errors import MovingError
from orchestrator.moving.restore import restore


class Command(BaseCommand):
    help = "Put a backup into an empty installation: an empty data folder, an empty database."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            # Nothing may start on the folder meanwhile.
            with folder_lock(settings.DATA_DIR, port=0):
                done = restore(options["file"], data=settings.DATA_DIR, say=self.stdout.write)
        except (MovingError, FolderInUseError) as error:
            raise CommandError(str(error)) from error
        rows = sum(done.manifest.rows.values())
        self.stdout.write(
            f"Restored {rows:,} rows and {done.files:,} files of {done.manifest.made_at}."
        )
        if done.paths:
            self.stdout.write(
                f"{done.paths} paths below {done.manifest.data_folder} lead to "
                f"{settings.DATA_DIR} now."
            )
        for note in done.notes:
            self.stdout.write(f"To do: {note}")
