"""Past rollouts that are compared when they are graded again: those of one task in one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from orchestrator.runs.models import Rollout


def whole_groups(rollout_ids: Sequence[int]) -> list[list[int]]:
    """The ids cut so that what is compared stays together, in the order of its first."""
    rows = Rollout.everything.filter(pk__in=rollout_ids).order_by("id")
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for pk, run_id, task_id in rows.values_list("pk", "run_id", "task_id"):
        groups[run_id, task_id].append(pk)
    return list(groups.values())
