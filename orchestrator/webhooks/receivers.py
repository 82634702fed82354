"""An event becomes a delivery for each webhook that listens, in the event's own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.events.models import Stream
from orchestrator.events.watching import watch
from orchestrator.webhooks.models import Webhook
from orchestrator.webhooks.sending import queue_delivery
from orchestrator.webhooks.services import body_of
from orchestrator.webhooks.subjects import subject_of
from orchestrator.webhooks.topics import KINDS, topic_of


def connect() -> None:
    watch(KINDS, on_event)


def on_event(stream_id: int, seq: int, kind: str, payload: Mapping[str, Any]) -> None:
    active = Webhook.objects.filter(project__streams=stream_id, is_active=True)
    hooks = list(active.select_related("project"))
    if not hooks:
        return
    stream_kind = Stream.objects.values_list("kind", flat=True).get(pk=stream_id)
    topic = topic_of(kind, stream_kind, payload)
    if topic is None or not (
        listening := [hook for hook in hooks if not hook.topics or topic.name in hook.topics]
    ):
        return
    subject = subject_of(stream_kind, stream_id)
    body = body_of(topic.name, listening[0].project, subject, payload, seq=seq)
    for hook in listening:
        queue_delivery(hook, topic.name, body)
