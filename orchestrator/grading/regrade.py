"""Past rollouts under another rubric: asked for, under way, ended. What a run gave stays.

The rollouts are fixed when it is asked for, and each has one row at most, so an attempt that goes
on after a crash grades exactly those without one. A back-test of a draft is the same with the
draft's spec frozen into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from orchestrator.events.services import Fence, NewEvent, append, create_stream, hold_fence
from orchestrator.grading.errors import RegradeRefused
from orchestrator.grading.models import Regrade, RegradedScore, RegradePurpose, RegradeState
from orchestrator.grading.selecting import MAX_ROLLOUTS, Selection, chosen_ids, in_words
from orchestrator.grading.signals import regrade_ended
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.runs.models import Run
from rubrics.codec import from_json
from rubrics.errors import RubricInvalid
from rubrics.models import Rubric, RubricVersion

OPEN_STATES = (RegradeState.QUEUED, RegradeState.RUNNING)
JOB_KIND = "grading.regrade"


def start_regrade(
    *,
    actor: User,
    version: RubricVersion,
    chosen: Selection,
    keep: str = "",
    purpose: str = RegradePurpose.REGRADE,
) -> Regrade:
    """Grades the chosen rollouts by `version` in the background.

    `keep`: "" grades all anew (judges answer equal questions from their cache); "decided" takes
    what the run has decided by equal criteria, which leaves what errored and what is new. Raises
    RegradeRefused when nothing is chosen or too much.
    """
    rubric = version.rubric
    require(actor, rubric.project_id, Role.EDITOR)
    ids = chosen_ids(rubric.project_id, chosen, MAX_ROLLOUTS + 1)
    if len(ids) > MAX_ROLLOUTS:
        raise RegradeRefused(
            f"More than {MAX_ROLLOUTS:,} rollouts are chosen; choose a run or an environment."
        )
    return start(
        actor=actor,
        rubric=rubric,
        version=version,
        spec=version.spec,
        purpose=purpose,
        ids=ids,
        selection={
            "text": in_words(rubric.project_id, chosen, len(ids)),
            "chosen": chosen.as_json(),
            "keep": keep,
        },
    )


def retry_errors_of_run(*, actor: User, run: Run) -> Regrade:
    """Grades again, by the run's own version, only what errored in it."""
    return start_regrade(
        actor=actor,
        version=run.rubric_version,
        chosen=Selection(run_id=run.pk, errored_verdicts=True),
        keep="decided",
    )


def start(
    *,
    actor: User | None,
    rubric: Rubric,
    version: RubricVersion | None,
    spec: Mapping[str, Any],
    purpose: str,
    ids: list[int],
    selection: Mapping[str, Any],
) -> Regrade:
    """`actor`: None where no person asks. Raises RegradeRefused."""
    if not ids:
        raise RegradeRefused("No rollout that has ended is among those. Choose others.")
    try:
        from_json(spec)
    except RubricInvalid as invalid:
        raise RegradeRefused(f"The rubric cannot be graded by yet: {invalid}") from None
    with transaction.atomic():
        regrade = Regrade.objects.create(
            project_id=rubric.project_id,
            rubric=rubric,
            version=version,
            spec=dict(spec),
            purpose=purpose,
            selection={**selection, "rollouts": ids},
            n_total=len(ids),
            stream=create_stream(project=rubric.project_id, kind="regrade"),
            asked_by=actor,
        )
        _enqueue(regrade)
    return regrade


def cancel_regrade(*, actor: User, regrade: Regrade) -> None:
    """Ends it; the scores so far stay. An ended one is left as it is."""
    require(actor, regrade.project_id, Role.EDITOR)
    if regrade.job is not None and regrade.state in OPEN_STATES:
        jobs.cancel(job=regrade.job)


def resume_regrade(*, actor: User, regrade: Regrade, with_errors: bool = False) -> int:
    """Goes on with those that have no score; with `with_errors` those that errored lose theirs.

    Returns how many are to be graded; 0 starts nothing. Raises RegradeRefused while it is under
    way.
    """
    require(actor, regrade.project_id, Role.EDITOR)
    with transaction.atomic():
        stored = Regrade.objects.select_for_update().get(pk=regrade.pk)
        if stored.state in OPEN_STATES:
            raise RegradeRefused("It is still under way. Wait for its end, or cancel it.")
        if with_errors:
            errored = [row.pk for row in stored.scores.all() if has_error(row)]
            stored.scores.filter(pk__in=errored).delete()
        left = len(missing_ids(stored))
        if left:
            stored.state, stored.error, stored.ended_at = RegradeState.QUEUED, "", None
            _enqueue(stored)
    return left


def has_error(row: RegradedScore) -> bool:
    """Of a verdict; a rollout whose episode has no result stays without a score."""
    return any(verdict["state"] == "errored" for verdict in row.verdicts)


def missing_ids(regrade: Regrade) -> list[int]:
    """Rollouts without a row, in order."""
    done = set(regrade.scores.values_list("rollout_id", flat=True))
    return [pk for pk in regrade.selection["rollouts"] if pk not in done]


def _enqueue(regrade: Regrade) -> None:
    regrade.job = jobs.enqueue(kind=JOB_KIND, spec={"regrade_id": regrade.pk})
    regrade.save()


# --- the job's writes ---------------------------------------------------------------------------


def mark_running(*, regrade: Regrade, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        Regrade.objects.filter(pk=regrade.pk, state=RegradeState.QUEUED).update(
            state=RegradeState.RUNNING
        )


def store_scores(*, regrade: Regrade, rows: Iterable[RegradedScore], fence: Fence) -> None:
    """Adds rows and tells how many there are. A row that exists stays."""
    with transaction.atomic():
        hold_fence(fence)
        RegradedScore.objects.bulk_create(rows, ignore_conflicts=True)
        n_done = regrade.scores.count()
        told = {"n_done": n_done, "n_total": regrade.n_total}
        append(stream_id=regrade.stream_id, items=[NewEvent("regrade.progress", told)])


def end_regrade(
    *, regrade_id: int, state: str, error: str = "", fence: Fence | None = None
) -> None:
    """Once; a later end changes nothing."""
    with transaction.atomic():
        if fence is not None:
            hold_fence(fence)
        ended = Regrade.objects.filter(pk=regrade_id, state__in=OPEN_STATES).update(
            state=state, error=error, ended_at=timezone.now()
        )
        if ended:
            stream_id = Regrade.objects.values_list("stream_id", flat=True).get(pk=regrade_id)
            told = {"state": state, "error": error}
            append(stream_id=stream_id, items=[NewEvent("regrade.ended", told)])
            regrade_ended.send(sender=Regrade, regrade=Regrade.objects.get(pk=regrade_id))
