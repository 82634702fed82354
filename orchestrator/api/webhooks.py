"""Webhooks of a project, and what they were sent."""

from __future__ import annotations

import datetime
import json
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import idempotency, paging
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.errors import Conflict
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_admin
from orchestrator.webhooks.models import Delivery, Webhook
from orchestrator.webhooks.queries import deliveries_in, webhooks_in
from orchestrator.webhooks.services import (
    WebhookRefused,
    add_webhook,
    remove_webhook,
    replay,
    send_ping,
    set_active,
)
from orchestrator.webhooks.targets import MAX_URL, TargetRefused
from orchestrator.webhooks.topics import TOPICS


class WebhookAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    target: Annotated[str, "Where messages go."]
    topics: list[str]
    is_active: bool
    stopped_reason: str
    created_at: datetime.datetime


class NewWebhookAnswer(WebhookAnswer):
    secret: Annotated[str, "By which messages are signed (Standard Webhooks); told this once."]


class DeliveryAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    message_id: str
    topic: str
    state: Annotated[str, "waiting, delivered or failed"]
    body: Annotated[Any, "As it was signed and sent."]
    attempts: Annotated[list[Any], "[{at, status, seconds, error, answer}], oldest first."]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class NewWebhookBody(serializers.Serializer[Any]):
    target = serializers.CharField(max_length=MAX_URL)
    topics = serializers.MultipleChoiceField(
        choices=[(topic.name, topic.title) for topic in TOPICS], allow_empty=False
    )


class WebhookChange(serializers.Serializer[Any]):
    is_active = serializers.BooleanField()


class Webhooks(Endpoint):
    area = "project"

    @operation(page_of(WebhookAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """Who is told what. Admins."""
        project = project_for_admin(request.user, project_id)
        return Response(
            paging.paged(
                request,
                webhooks_in(project.pk),
                lambda rows: [_webhook(request, row) for row in rows],
                html_url=page_url(request, "webhooks", project.pk),
                newest_first=False,
            )
        )

    @operation(NewWebhookAnswer, body=NewWebhookBody, status=201, says="Made.")
    def post(self, request: Request, project_id: int) -> Response:
        """An address to be told from now on. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(NewWebhookBody, request.data)
        try:
            made = add_webhook(
                actor=actor_of(request),
                project=project,
                url=asked["target"],
                topics=sorted(asked["topics"]),
            )
        except TargetRefused as refusal:
            raise ValidationError({"target": [str(refusal)]}) from refusal
        except WebhookRefused as refusal:
            raise Conflict(str(refusal)) from refusal
        answer: NewWebhookAnswer = {**_webhook(request, made.webhook), "secret": made.secret}
        return created(request, answer, answer["url"])


class WebhookDetail(Endpoint):
    area = "project"

    @operation(WebhookAnswer)
    def get(self, request: Request, project_id: int, webhook_id: int) -> Response:
        """One webhook. Admins."""
        return Response(_webhook(request, _found(request, project_id, webhook_id)))

    @operation(WebhookAnswer, body=WebhookChange)
    def patch(self, request: Request, project_id: int, webhook_id: int) -> Response:
        """Stops or starts it. Admins."""
        webhook = _found(request, project_id, webhook_id)
        asked = read(WebhookChange, request.data)
        set_active(actor=actor_of(request), webhook=webhook, is_active=asked["is_active"])
        return Response(_webhook(request, webhook))

    @operation(None, status=204, says="Gone.")
    def delete(self, request: Request, project_id: int, webhook_id: int) -> Response:
        """Removes it with the record of what it was sent. Admins."""
        remove_webhook(actor=actor_of(request), webhook=_found(request, project_id, webhook_id))
        return Response(status=204)


class Deliveries(Endpoint):
    area = "project"

    @operation(page_of(DeliveryAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, webhook_id: int) -> Response:
        """What it was sent, newest first. Admins."""
        webhook = _found(request, project_id, webhook_id)
        return Response(
            paging.paged(
                request,
                deliveries_in(webhook.pk),
                lambda rows: [_delivery(request, project_id, row) for row in rows],
                html_url=page_url(request, "webhook", project_id, webhook.pk),
            )
        )


class Ping(Endpoint):
    area = "project"

    @operation(
        DeliveryAnswer, parameters=[idempotency.PARAMETER], status=202, says="It is on its way."
    )
    def post(self, request: Request, project_id: int, webhook_id: int) -> Response:
        """Sends a message without an occasion. Admins."""
        webhook = _found(request, project_id, webhook_id)

        def send() -> Response:
            delivery = send_ping(actor=actor_of(request), webhook=webhook)
            answer = _delivery(request, project_id, delivery)
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, send)


class DeliveryDetail(Endpoint):
    area = "project"

    @operation(DeliveryAnswer)
    def get(self, request: Request, project_id: int, webhook_id: int, delivery_id: int) -> Response:
        """One message and its attempts. Admins."""
        webhook = _found(request, project_id, webhook_id)
        delivery = found(deliveries_in(webhook.pk), pk=delivery_id)
        return Response(_delivery(request, project_id, delivery))


class Replay(Endpoint):
    area = "project"

    @operation(
        DeliveryAnswer, parameters=[idempotency.PARAMETER], status=202, says="It is on its way."
    )
    def post(
        self, request: Request, project_id: int, webhook_id: int, delivery_id: int
    ) -> Response:
        """Sends a message once more, under its message id. Admins."""
        webhook = _found(request, project_id, webhook_id)
        rows = deliveries_in(webhook.pk)
        delivery = found(rows, pk=delivery_id)

        def send() -> Response:
            try:
                again = replay(actor=actor_of(request), delivery=delivery)
            except WebhookRefused as refusal:
                raise Conflict(str(refusal)) from refusal
            answer = _delivery(request, project_id, again)
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, send)


def _found(request: Request, project_id: int, webhook_id: int) -> Webhook:
    project = project_for_admin(request.user, project_id)
    return found(webhooks_in(project.pk), pk=webhook_id)


def _webhook(request: Request, row: Webhook) -> WebhookAnswer:
    return {
        "id": row.pk,
        "url": api_url(request, "webhook", row.project_id, row.pk),
        "html_url": page_url(request, "webhook", row.project_id, row.pk),
        "target": row.url,
        "topics": row.topics,
        "is_active": row.is_active,
        "stopped_reason": row.stopped_reason,
        "created_at": row.created_at,
    }


def _delivery(request: Request, project_id: int, row: Delivery) -> DeliveryAnswer:
    return {
        "id": row.pk,
        "url": api_url(request, "delivery", project_id, row.webhook_id, row.pk),
        "html_url": page_url(request, "webhook", project_id, row.webhook_id),
        "message_id": f"msg_{row.message_id.hex}",
        "topic": row.topic,
        "state": row.state,
        "body": json.loads(row.body),
        "attempts": row.attempts,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }
