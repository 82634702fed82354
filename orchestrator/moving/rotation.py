"""Writes stored secrets under the newest key."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.agents.models import ModelEndpoint
from orchestrator.projects.secrets import SecretUnreadable, rotated


@dataclass
class Rotation:
    written: int = 0
    unreadable: list[str] = field(default_factory=list)
    """Endpoints whose key was encrypted under a key that nobody knows any more."""


def rotate_secrets() -> Rotation:
    """Safe to repeat and to break off: each secret is readable before and after its own write."""
    done = Rotation()
    for endpoint in ModelEndpoint.objects.exclude(secret="").select_related("project"):
        try:
            fresh = rotated(endpoint.secret)
        except SecretUnreadable:
            done.unreadable.append(f"{endpoint.project.name}: {endpoint.name}")
            continue
        # Whoever entered a new key meanwhile keeps it.
        done.written += ModelEndpoint.objects.filter(pk=endpoint.pk, secret=endpoint.secret).update(
            secret=fresh
        )
    return done
