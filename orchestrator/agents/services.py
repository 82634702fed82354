"""What changes model endpoints."""

from __future__ import annotations

from django.db import connection

from orchestrator.agents.models import ModelEndpoint


def remember_tool_support(*, model: ModelEndpoint, takes_tools: bool) -> None:
    """What a run has found out, unless a person has said otherwise meanwhile."""
    try:
        ModelEndpoint.objects.filter(pk=model.pk, supports_tools__isnull=True).update(
            supports_tools=takes_tools
        )
    finally:
        connection.close()  # of a thread that ends
