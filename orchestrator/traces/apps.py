from __future__ import annotations

from django.apps import AppConfig


class TracesConfig(AppConfig):
    name = "orchestrator.traces"
    label = "traces"
