from __future__ import annotations

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    """Registers the commands below `orchestrator/management` and the system checks."""

    name = "orchestrator"
    label = "management"

    def ready(self) -> None:
        from orchestrator import checks  # noqa: F401 - registers the checks
