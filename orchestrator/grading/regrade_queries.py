"""What pages read of previews, golden cases, back-tests and re-grades."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Count

from orchestrator.grading.models import GoldenCase, Regrade
from orchestrator.grading.regrade import has_error
from orchestrator.grading.selecting import Selection, past_rollouts
from orchestrator.judging.models import JudgeCall
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import Rubric, RubricVersion

OFFERED = 40


@dataclass(frozen=True)
class RegradeRow:
    regrade: Regrade
    n_done: int


def regrades_of(rubric: Rubric, limit: int = 50) -> list[RegradeRow]:
    """Newest first."""
    rows = (
        Regrade.objects.filter(rubric=rubric)
        .select_related("version", "asked_by")
        .annotate(n_done=Count("scores"))
        .defer("spec")
        .order_by("-id")[:limit]
    )
    return [RegradeRow(row, row.n_done) for row in rows]


def regrades_of_run(run: Run, limit: int = 10) -> list[Regrade]:
    """Those that hold a rollout of the run, newest first."""
    found = Regrade.objects.filter(scores__rollout__run=run).distinct().order_by("-id")
    return list(found.select_related("version__rubric", "rubric").defer("spec")[:limit])


def n_done(regrade: Regrade) -> int:
    """Rollouts that are graded so far."""
    return regrade.scores.count()


def n_errored_rows(regrade: Regrade) -> int:
    """Rollouts of which a verdict errored."""
    return sum(has_error(row) for row in regrade.scores.only("state", "verdicts"))


def n_errored_in_run(run: Run) -> int:
    """Rollouts of the run of which a verdict errored."""
    rows = VerdictRecord.objects.filter(
        rollout__run=run, rollout__is_replaced=False, state="errored"
    )
    return rows.values("rollout_id").distinct().count()


def offered_rollouts(project_id: int, chosen: Selection, limit: int = OFFERED) -> list[Rollout]:
    """For a list to choose from, newest first."""
    found = past_rollouts(project_id, chosen).select_related("task")
    return list(found[:limit])


def past_rollout(project_id: int, rollout_id: int) -> Rollout | None:
    return (
        Rollout.everything.select_related("task", "stream", "run__rubric_version__rubric")
        .filter(run__project_id=project_id, pk=rollout_id)
        .first()
    )


def golden_case(rubric: Rubric, case_id: int) -> GoldenCase | None:
    return rubric.golden_cases.select_related("rollout").filter(pk=case_id).first()


def judge_calls(project_id: int, ids: Iterable[int]) -> dict[int, JudgeCall]:
    rows = JudgeCall.objects.filter(project_id=project_id, pk__in=list(ids))
    return {row.pk: row for row in rows.select_related("endpoint")}


def versions_in_project(project_id: int) -> Sequence[RubricVersion]:
    """All that rollouts could be graded by: by rubric, newest first."""
    rows = RubricVersion.objects.filter(rubric__project_id=project_id).select_related("rubric")
    return list(rows.order_by("rubric__name", "-number"))
