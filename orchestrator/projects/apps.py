from __future__ import annotations

from django.apps import AppConfig


class ProjectsConfig(AppConfig):
    name = "orchestrator.projects"
    label = "projects"

    def ready(self) -> None:
        from orchestrator.projects.audit import signals

        signals.connect()
