from __future__ import annotations

from django.apps import AppConfig


class ClimbsConfig(AppConfig):
    name = "orchestrator.climbs"
    label = "climbs"
