from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Max, Q, QuerySet

from orchestrator.webhooks.models import Delivery, DeliveryState, Webhook

PAGE = 50


@dataclass(frozen=True)
class WebhookRow:
    webhook: Webhook
    n_waiting: int
    n_failed: int
    last: Delivery | None


def webhooks_in(project_id: int) -> QuerySet[Webhook]:
    return Webhook.objects.filter(project_id=project_id).select_related("project")


def deliveries_in(webhook_id: int) -> QuerySet[Delivery]:
    return Delivery.objects.filter(webhook_id=webhook_id).select_related("webhook")


def webhooks_of(project_id: int) -> list[WebhookRow]:
    rows = list(
        Webhook.objects.filter(project_id=project_id)
        .select_related("created_by")
        .annotate(
            n_waiting=Count("deliveries", filter=Q(deliveries__state=DeliveryState.WAITING)),
            n_failed=Count("deliveries", filter=Q(deliveries__state=DeliveryState.FAILED)),
            last_id=Max("deliveries__id"),
        )
    )
    last = Delivery.objects.in_bulk([row.last_id for row in rows if row.last_id])
    return [
        WebhookRow(row, row.n_waiting, row.n_failed, last.get(row.last_id or 0)) for row in rows
    ]


def deliveries_of(
    webhook_id: int, *, before_id: int | None = None
) -> tuple[list[Delivery], int | None]:
    """Newest first, and where older ones go on."""
    rows = Delivery.objects.filter(webhook_id=webhook_id).order_by("-pk")
    if before_id is not None:
        rows = rows.filter(pk__lt=before_id)
    found = list(rows[: PAGE + 1])
    return found[:PAGE], found[PAGE - 1].pk if len(found) > PAGE else None
