from __future__ import annotations

from typing import Any

from django.urls import path

from orchestrator.events.consumers import StreamConsumer

# Channels routes ASGI applications with Django's patterns, which are typed for views.
_consumer: Any = StreamConsumer.as_asgi()

websocket_urlpatterns: list[Any] = [path("ws/streams/<int:stream_id>/", _consumer)]
