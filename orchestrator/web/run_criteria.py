"""What each criterion said in a run, with whether to believe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Avg, Count, Q

from orchestrator.review.badges import Badge, badges_of
from orchestrator.runs.models import Run, VerdictRecord
from orchestrator.web.rubric import criteria_of
from rubrics.types import State


@dataclass(frozen=True)
class CriterionRow:
    id: str
    name: str
    is_negative: bool
    mean: float | None
    n: int
    n_errored: int
    n_na: int
    badge: Badge | None

    @property
    def width(self) -> float:
        """Of its bar, in per cent."""
        return round(100 * (self.mean or 0.0), 1)


def criteria_of_run(run: Run) -> Sequence[CriterionRow]:
    """In the rubric's order; what could not be decided is counted and in no mean."""

    def number(state: State) -> Count:
        return Count("pk", filter=Q(state=state.value))

    counted = {
        row["criterion"]: row
        for row in VerdictRecord.objects.filter(rollout__run=run, rollout__is_replaced=False)
        .order_by()
        .values("criterion")
        .annotate(
            mean=Avg("value"),
            n=number(State.SCORED),
            errored=number(State.ERRORED),
            na=number(State.NOT_APPLICABLE),
        )
    }
    if not counted:
        return []
    badges = badges_of(run.rubric_version.rubric, run.rubric_version)
    rows = []
    for criterion in criteria_of(run.rubric_version.spec):
        found = counted.get(criterion["id"])
        if found is not None:
            rows.append(
                CriterionRow(
                    id=criterion["id"],
                    name=criterion["name"],
                    is_negative=criterion["negative"],
                    mean=found["mean"],
                    n=found["n"],
                    n_errored=found["errored"],
                    n_na=found["na"],
                    badge=badges.get(criterion["id"]),
                )
            )
    return rows
