from __future__ import annotations

from django.apps import AppConfig


class GatesConfig(AppConfig):
    name = "orchestrator.gates"
    label = "gates"

    def ready(self) -> None:
        from orchestrator.gates import receivers  # noqa: F401  (connects them)
