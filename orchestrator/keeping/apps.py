from __future__ import annotations

from django.apps import AppConfig


class KeepingConfig(AppConfig):
    name = "orchestrator.keeping"

    def ready(self) -> None:
        from orchestrator.keeping import jobs  # noqa: F401
