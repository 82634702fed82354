from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager


class Webhook(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="webhooks"
    )
    url = models.CharField(max_length=1000)
    secret = models.CharField(max_length=400)
    """Encrypted (`orchestrator.projects.secrets`); `whsec_` and base64 of 32 random bytes."""
    topics = models.JSONField(default=list)
    """Names of `orchestrator.webhooks.topics`; empty: all."""
    is_active = models.BooleanField(default=True)
    stopped_reason = models.CharField(max_length=300, blank=True)
    """Why Switchback stopped it, if it was not a person."""
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    if TYPE_CHECKING:
        deliveries: RelatedManager[Delivery]

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"webhook {self.pk}"


class DeliveryState(models.TextChoices):
    WAITING = "waiting", "Waiting"
    DELIVERED = "delivered", "Delivered"
    FAILED = "failed", "Failed"


class Delivery(models.Model):
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    message_id = models.UUIDField(default=uuid.uuid4)
    """The same for a message that is sent again, so that who hears it twice can tell."""
    topic = models.CharField(max_length=50)
    body = models.TextField()
    """The JSON text as it is signed and sent."""
    state = models.CharField(
        max_length=10, choices=DeliveryState.choices, default=DeliveryState.WAITING
    )
    attempts = models.JSONField(default=list)
    """[{at, status, seconds, error, answer}], oldest first."""
    replay_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replays"
    )
    job = models.ForeignKey(
        "jobs.Job", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["webhook", "-id"], name="delivery_of_webhook")]

    def __str__(self) -> str:
        return f"{self.topic} to webhook {self.webhook_id}"
