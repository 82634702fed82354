"""What changes runs: create, start, cancel, finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion, Task
from orchestrator.events.services import (
    Fence,
    NewEvent,
    append,
    append_many,
    create_streams,
    hold_fence,
)
from orchestrator.inserting import insert, insert_alike
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs import limits, queries
from orchestrator.runs.models import (
    ENDED_RUN_STATES,
    OPEN_ROLLOUT_STATES,
    Rollout,
    RolloutState,
    Run,
    RunState,
)
from orchestrator.runs.seeds import derive_seed
from orchestrator.runs.signals import run_ended
from rubrics.models import RubricVersion

COVERAGE_FLOOR = 0.8
"""Below this share of scored rollouts a run decides nothing (rule SC-3)."""


@dataclass(frozen=True)
class PlannedRollout:
    harness_id: int
    task: Task
    replicate: int = 0


@dataclass(frozen=True)
class RunSpec:
    """What a run is made of; frozen once it exists."""

    project: Project
    purpose: str
    label: str
    environment_version: EnvironmentVersion
    rubric_version: RubricVersion
    model: ModelEndpoint
    seed: int
    adapter_name: str = ""
    adapter_path: str = ""
    sampling: dict[str, Any] | None = None
    concurrency: int = 32


def create_run(*, spec: RunSpec, plan: Sequence[PlannedRollout], key: str | None = None) -> Run:
    """A run with all its rollouts pending; the run of that key where there is one.

    Raises `limits.LimitReached` if the project may not start so many today.
    """
    if not plan:
        raise ValueError("A run needs at least one rollout.")
    with transaction.atomic():
        if key is not None:
            existing = Run.objects.filter(key=key).first()
            if existing is not None:
                return existing
        limits.check(spec.project.pk, len(plan))
        kinds = ["run", *(["rollout"] * len(plan))]
        own, *streams = create_streams(project=spec.project, kinds=kinds)
        run = Run(
            project=spec.project,
            stream_id=own,
            key=key,
            purpose=spec.purpose,
            label=spec.label,
            environment_version=spec.environment_version,
            rubric_version=spec.rubric_version,
            model=spec.model,
            adapter_name=spec.adapter_name,
            adapter_path=spec.adapter_path,
            sampling=spec.sampling or {},
            concurrency=spec.concurrency,
            seed=spec.seed,
        )
        insert(run)
        insert_alike(
            Rollout(run=run),
            [
                {
                    "stream_id": stream_id,
                    "harness_id": planned.harness_id,
                    "task_id": planned.task.pk,
                    "replicate": planned.replicate,
                    "seed": derive_seed(spec.seed, planned.task.key, planned.replicate),
                }
                for stream_id, planned in zip(streams, plan, strict=True)
            ],
        )
    return run


def start_run(*, run: Run) -> Run:
    """Queues the run's job; a second call changes nothing."""
    with transaction.atomic(savepoint=False):
        job = jobs.enqueue(
            kind="runs.execute", queue="rollouts", spec={"run_id": run.pk}, key=f"run-{run.pk}"
        )
        Run.objects.filter(pk=run.pk, job__isnull=True).update(job=job)
        run.job = job
    return run


def mark_running(*, run: Run, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        started = Run.objects.filter(pk=run.pk, state=RunState.QUEUED).update(
            state=RunState.RUNNING, started_at=timezone.now()
        )
        if started:
            append(stream_id=run.stream_id, items=[NewEvent("run.started", {})], fence=fence)
    run.refresh_from_db()


def cancel_run(*, actor: User, run: Run) -> None:
    """Ends a run; rollouts without a result become `cancelled`. An ended run stays as it is."""
    require(actor, run.project, Role.EDITOR)
    if run.has_ended:
        return
    if run.job is not None:
        jobs.cancel(job=run.job)
    with transaction.atomic():
        still_queued = Run.objects.filter(pk=run.pk, state=RunState.QUEUED).exists()
    if still_queued:
        end_cancelled_run(run=run, fence=None)


def end_cancelled_run(*, run: Run, fence: Fence | None) -> None:
    with transaction.atomic():
        if fence is not None:
            hold_fence(fence)
        _end_open_rollouts(run, state=RolloutState.CANCELLED, cause="cancelled")
        _end(run=run, state=RunState.CANCELLED, error="", fence=fence)


def finish_run(*, run: Run, fence: Fence) -> None:
    """Ends a run whose rollouts have all ended; too few scores end it as unscored."""
    tally = queries.tally(run.pk)
    state = (
        RunState.COMPLETED
        if tally.scored and tally.coverage >= COVERAGE_FLOOR
        else RunState.COMPLETED_UNSCORED
    )
    error = "" if state == RunState.COMPLETED else _unscored_reason(run, tally)
    with transaction.atomic():
        hold_fence(fence)
        _end(run=run, state=state, error=error, fence=fence)


def end_failed_run(*, run: Run, error: str, fence: Fence | None = None) -> None:
    """Ends a run that cannot go on; its open rollouts are errored with the same reason."""
    with transaction.atomic():
        if fence is not None:
            hold_fence(fence)
        _end_open_rollouts(run, state=RolloutState.ERRORED, cause="run_failed", message=error)
        _end(run=run, state=RunState.FAILED, error=error, fence=fence)


def _end_open_rollouts(run: Run, *, state: str, cause: str, message: str = "") -> None:
    """Needs a transaction. Each tells it on its own stream and on the run's, as every end does.

    Without a message each says how far it had come.
    """
    still_open = Rollout.objects.filter(run=run, state__in=OPEN_ROLLOUT_STATES)
    rollouts = list(still_open.select_related("task", "harness").order_by("id"))
    batches: dict[int, list[NewEvent]] = {run.stream_id: []}
    for rollout in rollouts:
        rollout.n_steps, where = queries.progress_of(rollout)
        rollout.state, rollout.cause, rollout.ended_at = state, cause, timezone.now()
        rollout.message = message or f"Cancelled by a person {where}. No score."
        batches[rollout.stream_id] = [NewEvent("rollout.ended", queries.ended_payload(rollout))]
        batches[run.stream_id].append(NewEvent("rollout", queries.rollout_row(rollout)))
    if rollouts:
        fields = ["state", "cause", "message", "n_steps", "ended_at"]
        Rollout.objects.bulk_update(rollouts, fields, batch_size=200)
        append_many(batches=batches)


def _unscored_reason(run: Run, tally: queries.Tally) -> str:
    worst = (
        Rollout.objects.filter(run=run, state=RolloutState.ERRORED)
        .values_list("message", flat=True)
        .first()
    )
    return (
        f"Only {tally.scored} of {tally.scored + tally.errored} rollouts could be scored; "
        f"{COVERAGE_FLOOR:.0%} are needed for a decision. First reason: {worst or 'none recorded'}"
    )


def _end(*, run: Run, state: str, error: str, fence: Fence | None) -> None:
    """Needs a transaction. The listeners of `run_ended` run inside it."""
    changed = (
        Run.objects.filter(pk=run.pk)
        .exclude(state__in=ENDED_RUN_STATES)
        .update(state=state, error=error, ended_at=timezone.now())
    )
    if not changed:
        return
    run.refresh_from_db()
    append(
        stream_id=run.stream_id,
        items=[
            NewEvent("tally", asdict(queries.tally(run.pk))),
            NewEvent("run.ended", {"state": state, "error": error}),
        ],
        fence=fence,
    )
    run_ended.send(sender=Run, run=run)
