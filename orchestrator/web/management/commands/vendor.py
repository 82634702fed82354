from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from orchestrator.web.vendoring import problems, read_manifest


class Command(BaseCommand):
    help = "Lists the vendored files; with --check, fails when one is missing, changed or unlisted."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="compare with the manifest")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = Path(settings.BASE_DIR) / "static" / "vendor"
        if options["check"]:
            if found := problems(folder):
                raise CommandError("\n".join(found))
            self.stdout.write(f"{len(read_manifest(folder))} vendored files are as written.")
            return
        for item in read_manifest(folder):
            self.stdout.write(f"{item.path}  {item.package} {item.version}  {item.licence}")
