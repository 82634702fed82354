from __future__ import annotations

from django.apps import AppConfig


class OptimizerConfig(AppConfig):
    name = "optimizer"
