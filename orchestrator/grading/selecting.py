"""Which past rollouts are graded again: by run, environment, state, or ticked one by one.

Only what has ended and was not replaced by a retry. Rollouts of the sealed test split may be
graded, and results mark them: a rubric that is fitted to them unseals them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Q, QuerySet

from orchestrator.environments.models import Environment, Split
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, Run
from rubrics.models import Rubric

MAX_ROLLOUTS = 20_000
"""Of one re-grade."""
BACKTEST_ROLLOUTS = 500
STATES = ("", "scored", "passed", "failed", "errored")


@dataclass(frozen=True)
class Selection:
    """All that is given must hold; nothing given means all of the project."""

    run_id: int | None = None
    environment_id: int | None = None
    rubric_id: int | None = None
    """Graded by one of its versions."""
    state: str = ""
    rollout_ids: tuple[int, ...] = ()
    search: str = ""
    """In the task's key, the answer and the message."""
    split: str = ""
    without_test: bool = False
    """Leave out the sealed test split."""
    errored_verdicts: bool = False
    """Only those of which a verdict errored."""

    def as_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v not in (None, "", (), False)}


def past_rollouts(project_id: int, chosen: Selection) -> QuerySet[Rollout]:
    """Newest first."""
    found = (
        Rollout.objects.filter(run__project_id=project_id)
        .exclude(state__in=[*OPEN_ROLLOUT_STATES, RolloutState.CANCELLED])
        .order_by("-id")
    )
    if chosen.run_id is not None:
        found = found.filter(run_id=chosen.run_id)
    if chosen.environment_id is not None:
        found = found.filter(run__environment_version__environment_id=chosen.environment_id)
    if chosen.rubric_id is not None:
        found = found.filter(run__rubric_version__rubric_id=chosen.rubric_id)
    if chosen.rollout_ids:
        found = found.filter(pk__in=chosen.rollout_ids)
    if chosen.split:
        found = found.filter(task__split=chosen.split)
    if chosen.without_test:
        found = found.exclude(task__split=Split.TEST)
    if chosen.search:
        words = chosen.search
        found = found.filter(
            Q(task__key__icontains=words)
            | Q(answer__icontains=words)
            | Q(message__icontains=words)
            | Q(pk=int(words) if words.isdecimal() and len(words) < 19 else -1)
        )
    if chosen.errored_verdicts:
        found = found.filter(verdicts__state="errored").distinct()
    return _in_state(found, chosen.state)


def _in_state(found: QuerySet[Rollout], state: str) -> QuerySet[Rollout]:
    if state == "passed":
        return found.filter(score__gte=0.5)
    if state == "failed":
        return found.filter(score__lt=0.5)
    return found.filter(state=state) if state in ("scored", "errored") else found


def chosen_ids(project_id: int, chosen: Selection, limit: int) -> list[int]:
    """Oldest first of the newest `limit`."""
    return sorted(past_rollouts(project_id, chosen).values_list("pk", flat=True)[:limit])


def in_words(project_id: int, chosen: Selection, n: int) -> str:
    """For people: "the newest 500 scored rollouts of run 12"."""
    if chosen.rollout_ids:
        return f"{n} ticked rollouts"
    parts = [f"{n} {chosen.state} rollouts".replace("  ", " ")]
    if chosen.run_id is not None:
        run = Run.objects.filter(project_id=project_id, pk=chosen.run_id).first()
        name = run.label if run else ""
        parts.append(f"of run {chosen.run_id}{f' ({name})' if name else ''}")
    if chosen.environment_id is not None:
        found = (
            Environment.objects.filter(project_id=project_id, pk=chosen.environment_id)
            .values_list("name", flat=True)
            .first()
        )
        parts.append(f"of {found or 'an environment that is gone'}")
    if chosen.rubric_id is not None:
        grader = Rubric.objects.filter(pk=chosen.rubric_id).values_list("name", flat=True).first()
        parts.append(f"that {grader} has graded")
    if chosen.errored_verdicts:
        parts.append("with an errored verdict")
    if chosen.split:
        parts.append(f"of the {chosen.split} split")
    if chosen.search:
        parts.append(f"with “{chosen.search}”")
    if chosen.without_test:
        parts.append("without the sealed test split")
    return " ".join(parts)


def choices(project_id: int) -> tuple[Sequence[Run], Sequence[Environment]]:
    """What a form offers: the newest 50 runs, and environments by name."""
    runs = Run.objects.filter(project_id=project_id).select_related(
        "environment_version__environment", "rubric_version__rubric"
    )
    environments = Environment.objects.filter(project_id=project_id).order_by("name")
    return list(runs.order_by("-id")[:50]), list(environments)
