from __future__ import annotations

from django.apps import AppConfig


class SearchesConfig(AppConfig):
    name = "orchestrator.searches"
    label = "searches"

    def ready(self) -> None:
        from orchestrator.searches import receivers  # noqa: F401  (connects them)
