"""`manage.py backup FILE`: the database and the files of the installation in one file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from orchestrator.moving import backup
from orchestrator.moving.archive import Manifest
from orchestrator.moving.errors import MovingError


class Command(BaseCommand):
    help = "Write a backup while everything runs, and read it once more; or check one (--verify)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="where the backup goes, such as monday.zip")
        parser.add_argument("--verify", action="store_true", help="check a backup, change nothing")
        parser.add_argument("--no-files", action="store_true", help="the database alone")
        parser.add_argument("--with-models", action="store_true", help="the models/ folder too")
        parser.add_argument(
            "--with-secret-key",
            action="store_true",
            help="the SECRET_KEY too: whoever has the file can then read stored API keys",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        try:
            if options["verify"]:
                manifest = backup.check(path)
                self.stdout.write(f"{path} is whole: {_told(manifest)}.")
                return
            manifest = backup.write(
                path,
                data=settings.DATA_DIR,
                with_files=not options["no_files"],
                with_models=options["with_models"],
                with_key=options["with_secret_key"],
                say=self.stdout.write if options["verbosity"] > 1 else lambda line: None,
            )
        except MovingError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{path} is written and checked: {_told(manifest)}.")
        for part in manifest.left_out:
            self.stdout.write(f"Not in it: {part}.")
        if moved := manifest.moved_meanwhile:
            self.stdout.write(
                f"{len(moved)} files changed or went away while they were read: "
                f"{', '.join(moved[:5])}{' …' if len(moved) > 5 else ''}."
            )


def _told(manifest: Manifest) -> str:
    files = [member for name, member in manifest.members.items() if name.startswith("files/")]
    size = sum(member.size for member in manifest.members.values())
    return (
        f"{sum(manifest.rows.values()):,} rows in {len(manifest.rows)} tables of "
        f"{manifest.vendor}, {len(files):,} files, {size / 1e6:,.1f} MB unpacked, made "
        f"{manifest.made_at} by version {manifest.version}"
    )
