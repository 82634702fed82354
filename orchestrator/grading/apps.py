from __future__ import annotations

from django.apps import AppConfig


class GradingConfig(AppConfig):
    name = "orchestrator.grading"
    label = "grading"
