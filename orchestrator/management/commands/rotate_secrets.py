"""`manage.py rotate_secrets`: after a change of SECRET_KEY, stored secrets go under the new one."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.moving.rotation import rotate_secrets


class Command(BaseCommand):
    help = (
        "Write stored secrets under the present SECRET_KEY. The one before it stands in "
        "SECRET_KEY_PREVIOUS until this has succeeded."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        done = rotate_secrets()
        self.stdout.write(f"{done.written} written under the present key.")
        if done.unreadable:
            raise CommandError(
                f"{len(done.unreadable)} cannot be read, enter them again: "
                + "; ".join(done.unreadable)
            )
