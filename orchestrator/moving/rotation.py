"""Writes stored secrets under the newest key: API keys of endpoints, signing keys of webhooks."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.agents.models import ModelEndpoint
from orchestrator.projects.secrets import SecretUnreadable, rotated
from orchestrator.webhooks.models import Webhook


@dataclass
class Rotation:
    written: int = 0
    unreadable: list[str] = field(default_factory=list)
    """Whose secret was encrypted under a key that nobody knows any more."""


def rotate_secrets() -> Rotation:
    """Safe to repeat and to break off: each secret is readable before and after its own write."""
    done = Rotation()
    for model in (ModelEndpoint, Webhook):
        for row in model._default_manager.exclude(secret="").select_related("project"):
            try:
                fresh = rotated(row.secret)
            except SecretUnreadable:
                name = row.name if isinstance(row, ModelEndpoint) else f"webhook to {row.url}"
                done.unreadable.append(f"{row.project.name}: {name}")
                continue
            # Whoever entered a new one meanwhile keeps it.
            done.written += model._default_manager.filter(pk=row.pk, secret=row.secret).update(
                secret=fresh
            )
    return done
