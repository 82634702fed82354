"""What came from outside, beside the log that shows it.

The log (`events_event`) numbers arrivals and holds a preview; here is the event as it was sent, by
checksum of its id, so that no id is too long or too odd for a key.
"""

from __future__ import annotations

from django.db import models


class OutsideRollout(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="outside_rollouts"
    )
    key = models.CharField(max_length=64)
    """SHA-256 of its name."""
    name = models.TextField()
    """The producer's name as JSON in ASCII."""
    rollout = models.OneToOneField("runs.Rollout", on_delete=models.CASCADE, related_name="outside")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "key"], name="outside_rollout_once")
        ]

    def __str__(self) -> str:
        return self.name


class OutsideEvent(models.Model):
    owner = models.ForeignKey(OutsideRollout, on_delete=models.CASCADE, related_name="events")
    key = models.CharField(max_length=64)
    """SHA-256 of its id."""
    parent_key = models.CharField(max_length=64, blank=True)
    position = models.BigIntegerField()
    """The producer's number; what is shown follows it."""
    seq = models.PositiveBigIntegerField()
    """Of the event in the rollout's log."""
    body = models.TextField()
    """As it was sent: strict JSON in ASCII, digits and code units kept."""
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    flags = models.JSONField(default=list)

    class Meta:
        ordering = ["position", "seq"]
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="outside_event_once")]
        indexes = [models.Index(fields=["owner", "position", "seq"])]

    def __str__(self) -> str:
        return f"{self.owner_id}#{self.seq}"


class RefusedItem(models.Model):
    """An item that was not taken, with what was sent and, for a conflict, what is stored."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="refused_items"
    )
    index = models.PositiveIntegerField()
    reason_kind = models.CharField(max_length=32)
    detail = models.TextField()
    body = models.TextField(blank=True)
    stored_body = models.TextField(blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.reason_kind} at {self.index}"
