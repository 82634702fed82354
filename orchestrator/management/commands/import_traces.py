"""`manage.py import_traces FILE --project N`: events from a file of JSON lines."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.projects.models import Project
from orchestrator.traces.reading import read_item
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
        items = []
        with options["file"].open("rb") as lines:
            for index, line in enumerate(lines):
                if line.strip():
                    items.append(read_item(index, line))
                if len(items) == _AT_ONCE:
                    _add(total, ingest(project=project, items=items))
                    items = []
        _add(total, ingest(project=project, items=items))
        for refused in total.rejected[:20]:
            self.stdout.write(f"line {refused.index + 1}: {refused.reason_kind}, {refused.detail}")
        self.stdout.write(
            f"{total.accepted} accepted, {total.duplicate} known, {len(total.rejected)} refused"
        )


def _add(total: Outcome, outcome: Outcome) -> None:
    total.accepted += outcome.accepted
    total.duplicate += outcome.duplicate
    total.rejected += outcome.rejected
