"""What pages read of judge calls."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.judging.models import JudgeCall


def calls_by_id(project_id: int, ids: Iterable[int]) -> dict[int, JudgeCall]:
    """Those of the project among `ids`."""
    wanted = set(ids)
    if not wanted:
        return {}
    found = JudgeCall.objects.filter(project_id=project_id, pk__in=wanted)
    return {call.pk: call for call in found.select_related("endpoint")}
