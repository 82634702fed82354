from __future__ import annotations

from django.apps import AppConfig


class TryoutsConfig(AppConfig):
    name = "orchestrator.tryouts"
    label = "tryouts"
