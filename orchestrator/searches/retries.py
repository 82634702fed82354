"""Repeats of rollouts that were lost to infrastructure: never a zero, and never without end.

Each is repeated once, in a run of its own that is booked on an account of its own. What cannot be
repeated stays without a score, and the coverage floor has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.models import Search
from orchestrator.events.services import Fence
from orchestrator.judging.accounts import ROLLOUTS, BudgetExceeded, accounts_of
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run
from orchestrator.runs.services import PlannedRollout
from orchestrator.searches.asking import ask_for_run
from orchestrator.searches.learning import WHOLE
from orchestrator.searches.rows import ASKED_AGAIN, REPEATED
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.spending import AGENT, scope_of

NOT_LOST = frozenset({"action_rejected", "action_too_large", "step_limit", "context_overflow"})
"""Causes that the agent's own doing may have brought: a repeat would only roll the dice again."""


def repeat_lost(
    *, search: Search, settings: SearchSettings, latest: Run, fence: Fence
) -> Run | None:
    """A run of what the newest run lost, as far as the account for repeats goes; None: nothing."""
    search_run = search.search_runs.get(run=latest)
    if search_run.phase in (REPEATED, *WHOLE):
        return None
    lost = lost_in(latest)[: left_for_repeats(search)]
    if not lost:
        return None
    try:
        return ask_for_run(
            search=search,
            settings=settings,
            key=f"retry-{latest.pk}",
            phase=REPEATED,
            label="Again after infrastructure errors",
            purpose=Purpose(latest.purpose),
            plan=[PlannedRollout(r.harness_id, r.task, r.replicate) for r in lost],
            seed_part="search",
            fence=fence,
        )
    except BudgetExceeded:
        return None  # of money or time: the rollouts stay lost, the search goes on without


def lost_in(run: Run) -> Sequence[Rollout]:
    return list(
        run.rollouts.filter(state=RolloutState.ERRORED)
        .exclude(cause__in=(*NOT_LOST, *ASKED_AGAIN))
        .select_related("task")
        .order_by("id")
    )


def left_for_repeats(search: Search) -> int:
    scope = f"{scope_of(search.pk)}/{REPEATED}"
    rows = accounts_of([scope], AGENT).get(ROLLOUTS, [])
    return max(0, min((int(row.cap - row.used - row.reserved) for row in rows), default=0))
