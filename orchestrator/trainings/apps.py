from __future__ import annotations

from django.apps import AppConfig


class TrainingsConfig(AppConfig):
    name = "orchestrator.trainings"
    label = "trainings"

    def ready(self) -> None:
        from orchestrator.trainings import receivers  # noqa: F401  (connects them)
