from __future__ import annotations

from django.apps import AppConfig


class TracesConfig(AppConfig):
    name = "orchestrator.traces"
    label = "traces"

    def ready(self) -> None:
        from orchestrator.events.search_sources import register
        from orchestrator.traces.services import KIND
        from orchestrator.traces.words import words_source

        register(KIND, words_source)
