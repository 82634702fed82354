"""Writes a rubric to standard output or into a folder.

manage.py export_rubric 7 > rubric.json
manage.py export_rubric 7 --format harbor --to tests/
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.grading.importing import Format, export
from rubrics.models import RubricVersion


class Command(BaseCommand):
    help = "Write a rubric as JSON of ours or of OpenEnv, or as judge files of Harbor."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("rubric", type=int, help="id of the rubric")
        parser.add_argument("--number", type=int, help="of the version; the newest")
        parser.add_argument("--format", choices=list(Format), default=Format.OURS)
        parser.add_argument("--to", type=Path, help="folder; standard output where absent")

    def handle(self, *args: Any, **options: Any) -> None:
        versions = RubricVersion.objects.filter(rubric_id=options["rubric"]).order_by("-number")
        if options["number"] is not None:
            versions = versions.filter(number=options["number"])
        version = versions.select_related("rubric").first()
        if version is None:
            raise CommandError(f"There is no such version of a rubric {options['rubric']}.")
        found = export(version, Format(options["format"]))
        for loss in found.losses:
            self.stderr.write(f"Not carried over: {loss}")
        if not found.files:
            raise CommandError(f"Nothing of {version} has a form in {options['format']}.")
        for name, text in found.files.items():
            self._write(name, text, options["to"], is_only=len(found.files) == 1)

    def _write(self, name: str, text: str, folder: Path | None, *, is_only: bool) -> None:
        if folder is None:
            self.stdout.write(text if is_only else f"# {name}\n{text}", ending="")
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        self.stdout.write(str(folder / name))
