"""Requests that must be done once, with what was answered.

The row and what the request started are committed together, so that a key either stands for both
or for nothing.
"""

from __future__ import annotations

from django.db import models


class IdempotentRequest(models.Model):
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)
    """SHA-256 of method, address and body."""
    status = models.PositiveSmallIntegerField(default=0)
    body = models.TextField(blank=True)
    """JSON, as answered."""
    location = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_of_user")
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.status}"
