"""What people do with webhooks: add, change, test, send again, remove."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from orchestrator.projects import audit
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.projects.secrets import encrypt
from orchestrator.webhooks.models import Delivery, DeliveryState, Webhook
from orchestrator.webhooks.sending import queue_delivery
from orchestrator.webhooks.signing import new_secret
from orchestrator.webhooks.subjects import Subject, address_of
from orchestrator.webhooks.targets import resolve
from orchestrator.webhooks.topics import NAMES, PING

MAX_WEBHOOKS = 20


class WebhookRefused(ValueError):
    """It cannot be done; the text says why."""


@dataclass(frozen=True)
class NewWebhook:
    webhook: Webhook
    secret: str
    """Clear text, to be shown once."""


def add_webhook(*, actor: User, project: Project, url: str, topics: Sequence[str]) -> NewWebhook:
    """Raises TargetRefused, WebhookRefused."""
    require(actor, project, Role.ADMIN)
    if unknown := set(topics) - set(NAMES):
        raise WebhookRefused(f"Unknown: {', '.join(sorted(unknown))}. Known: {', '.join(NAMES)}.")
    if Webhook.objects.filter(project=project).count() >= MAX_WEBHOOKS:
        raise WebhookRefused(f"A project has at most {MAX_WEBHOOKS} webhooks. Remove one first.")
    resolve(url)
    secret = new_secret()
    webhook = Webhook.objects.create(
        project=project,
        url=url,
        topics=[name for name in NAMES if name in topics],
        secret=encrypt(secret),
        created_by=actor,
    )
    return NewWebhook(webhook, secret)


def set_active(*, actor: User, webhook: Webhook, is_active: bool) -> None:
    """What waits for a webhook that is stopped is given up at its next attempt."""
    require(actor, webhook.project_id, Role.ADMIN)
    webhook.is_active, webhook.stopped_reason = is_active, ""
    webhook.save(update_fields=["is_active", "stopped_reason"])


def remove_webhook(*, actor: User, webhook: Webhook) -> None:
    """With the record of what it was sent."""
    require(actor, webhook.project_id, Role.ADMIN)
    webhook.delete()


def send_ping(*, actor: User, webhook: Webhook) -> Delivery:
    """A message without an occasion, to see whether it arrives."""
    require(actor, webhook.project_id, Role.ADMIN)
    with transaction.atomic():
        return queue_delivery(webhook, PING, body_of(PING, webhook.project, None, {}))


def replay(*, actor: User, delivery: Delivery) -> Delivery:
    """Sends it once more, under the same message id. Raises WebhookRefused while it waits."""
    require(actor, delivery.webhook.project_id, Role.ADMIN)
    if delivery.state == DeliveryState.WAITING:
        raise WebhookRefused("It is still being sent.")
    if not delivery.webhook.is_active:
        raise WebhookRefused("The webhook is stopped. Start it first.")
    with transaction.atomic():
        again = queue_delivery(delivery.webhook, delivery.topic, delivery.body, replay_of=delivery)
    audit.changed(
        "delivery", delivery.pk, delivery.topic, before={"replay": None}, after={"replay": again.pk}
    )
    return again


def body_of(
    topic: str, project: Project, subject: Subject | None, data: Mapping[str, Any], *, seq: int = 0
) -> str:
    message: dict[str, Any] = {
        "type": topic,
        "timestamp": timezone.now().isoformat(),
        "project": {"id": project.pk, "name": project.name},
        "data": dict(data),
    }
    if subject is not None:
        message["subject"] = {
            "kind": subject.kind,
            "id": subject.id,
            "label": subject.label,
            "html_url": address_of(subject, project.pk),
            "seq": seq,
        }
    return json.dumps(message, ensure_ascii=False)
