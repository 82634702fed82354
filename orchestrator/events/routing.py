from __future__ import annotations

from django.urls import URLPattern, path

from orchestrator.events.consumers import StreamConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/streams/<int:stream_id>/", StreamConsumer.as_asgi()),
]
