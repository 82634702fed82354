from __future__ import annotations

from django.apps import AppConfig


class RubricsConfig(AppConfig):
    name = "rubrics"
