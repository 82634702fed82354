"""`manage.py share_files`: what this host's data folder holds, for the hosts that are to come."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from orchestrator.blobs.errors import BlobError
from orchestrator.moving.errors import MovingError
from orchestrator.moving.offering import offer


class Command(BaseCommand):
    help = "Put what this host's data folder holds where other hosts find it (SWITCHBACK_BLOBS)."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            done = offer(settings.DATA_DIR, self.stdout.write)
        except (MovingError, BlobError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            "Offered: " + ", ".join(f"{count} {kind}" for kind, count in done.items()) + "."
        )
