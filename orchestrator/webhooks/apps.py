from __future__ import annotations

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "orchestrator.webhooks"
    label = "webhooks"

    def ready(self) -> None:
        from orchestrator.webhooks import receivers

        receivers.connect()
