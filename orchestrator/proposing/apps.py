from __future__ import annotations

from django.apps import AppConfig


class ProposingConfig(AppConfig):
    name = "orchestrator.proposing"
    label = "proposing"
