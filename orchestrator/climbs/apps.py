from __future__ import annotations

from django.apps import AppConfig


class ClimbsConfig(AppConfig):
    name = "orchestrator.climbs"
    label = "climbs"

    def ready(self) -> None:
        from orchestrator.climbs import receivers  # noqa: F401  (connects them)
