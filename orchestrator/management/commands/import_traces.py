"""`manage.py import_traces FILE --project N`: traces that other tools wrote.

JSON lines are read line by line, whatever their size; any other file as the import page reads it.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.events.indexing import index_waiting
from orchestrator.projects.models import Project
from orchestrator.traces.importing import FileRefused, import_file
from orchestrator.traces.reading import Item, Refused, read_item
from orchestrator.traces.services import Outcome, ingest

_AT_ONCE = 500


class Command(BaseCommand):
    help = "Takes in events of rollouts that ran elsewhere; sending a file twice stores it once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--project", type=int, required=True, help="id of the project")

    def handle(self, *args: Any, **options: Any) -> None:
        project = Project.objects.filter(pk=options["project"]).first()
        if project is None:
            raise CommandError(f"no project {options['project']}")
        total = Outcome()
        if options["file"].suffix.lower() in (".jsonl", ".ndjson"):
            self._read_lines(options["file"], project, total)
        else:
            try:
                content = options["file"].read_bytes()
                imported = import_file(project=project, name=options["file"].name, content=content)
            except (FileRefused, OSError) as error:
                raise CommandError(str(error)) from error
            total = imported.outcome
        index_waiting()
        for refused in total.rejected[:20]:
            self.stdout.write(f"line {refused.index + 1}: {refused.reason_kind}, {refused.detail}")
        self.stdout.write(
            f"{total.accepted} accepted, {total.duplicate} known, {len(total.rejected)} refused"
        )

    def _read_lines(self, path: Path, project: Project, total: Outcome) -> None:
        items: list[Item | Refused] = []
        with path.open("rb") as lines:
            for index, line in enumerate(lines):
                if line.strip():
                    items.append(read_item(index, line))
                if len(items) == _AT_ONCE:
                    _add(total, ingest(project=project, items=items))
                    items = []
        _add(total, ingest(project=project, items=items))


def _add(total: Outcome, outcome: Outcome) -> None:
    total.accepted += outcome.accepted
    total.duplicate += outcome.duplicate
    total.rejected += outcome.rejected
