from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.blobs.errors import BlobError
from orchestrator.blobs.keeping import clean
from orchestrator.blobs.services import store


class Command(BaseCommand):
    help = "Try where large bytes lie, and remove those that no row names any more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--check", action="store_true", help="write and read a small one")
        what.add_argument(
            "--clean", action="store_true", help="remove what no row names and is a week old"
        )
        parser.add_argument("--dry-run", action="store_true", help="with --clean: only count")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            blobs = store()
            if options["check"]:
                blobs.check()
                self.stdout.write(f"{blobs!r}: written and read")
                return
            is_dry = bool(options["dry_run"])
            found = clean(blobs, is_dry=is_dry)
        except (BlobError, ValueError) as error:
            raise CommandError(str(error)) from error
        did = "would be removed" if is_dry else "removed"
        self.stdout.write(
            f"{blobs!r}: {found.kept} in use, {found.removed} {did} ({found.bytes_removed} bytes), "
            f"{found.spared} unnamed and younger than a week"
        )
