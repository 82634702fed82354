"""Who an environment tried to reach, and what the proxy answered."""

from __future__ import annotations

from django.db import models


class EgressDecision(models.Model):
    version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.CASCADE, related_name="egress"
    )
    at = models.DateTimeField()
    host = models.CharField(max_length=255)
    """As asked for; foreign text."""
    port = models.PositiveIntegerField(default=0)
    method = models.CharField(max_length=16)
    action = models.CharField(max_length=8)
    """`allow` or `deny`."""
    reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["version", "-id"])]

    def __str__(self) -> str:
        return f"{self.action} {self.method} {self.host}"


class EgressLog(models.Model):
    """How far a file of decisions has been read. Each machine has files of its own."""

    version = models.ForeignKey(
        "environments.EnvironmentVersion", on_delete=models.CASCADE, related_name="+"
    )
    place = models.CharField(max_length=300)
    """Machine and path."""
    offset_bytes = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "place"], name="egress_log_place")
        ]

    def __str__(self) -> str:
        return f"{self.place} to {self.offset_bytes}"
