from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class JobsConfig(AppConfig):
    name = "orchestrator.jobs"
    label = "jobs"

    def ready(self) -> None:
        # Handlers register themselves on import: each app's `jobs.py`.
        autodiscover_modules("jobs")
