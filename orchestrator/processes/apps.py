from __future__ import annotations

from django.apps import AppConfig


class ProcessesConfig(AppConfig):
    name = "orchestrator.processes"
    label = "processes"

    def ready(self) -> None:
        from orchestrator.processes import workers

        workers.connect()
