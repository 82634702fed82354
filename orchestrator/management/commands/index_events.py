"""`manage.py index_events`: full-text index of events that were written past the application."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from orchestrator.events.search import index_all


class Command(BaseCommand):
    help = "Adds events that the full-text index lacks, in batches; safe beside running work."

    def handle(self, *args: Any, **options: Any) -> None:
        batches = index_all()
        self.stdout.write(f"The index is complete; {batches} batches were added.")
