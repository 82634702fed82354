"""What pages read of trainings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet

from orchestrator.events.models import Event
from orchestrator.grading.policies import rewards
from orchestrator.runs.models import Rollout, RolloutState, Run
from orchestrator.trainings.devices import devices
from orchestrator.trainings.folders import is_kept
from orchestrator.trainings.scheduling import current_plan, used_s
from training.credit import group_advantages
from training.models import (
    ENDED_TRAINING_STATES,
    Checkpoint,
    Sweep,
    TrainingAlarm,
    TrainingJob,
    TrainingQuota,
    TrainingRun,
    TrainingRunKind,
)
from training.scheduling import Device
from training.types import AdvantageMode, AdvantageSpec

MAP_STEPS = 40
"""Newest steps on the map of groups."""
MAP_TASKS = 60
CELL = 600
"""Characters of an action or observation beside its siblings."""


# --- the queue -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceRow:
    device: Device
    job: TrainingJob | None
    """Of this project."""
    is_taken: bool
    """By a job of whatever project."""


@dataclass(frozen=True)
class QueueRow:
    job: TrainingJob
    place: int
    """Among all that wait, from 1."""
    why: str


@dataclass(frozen=True)
class QueueView:
    devices: Sequence[DeviceRow]
    waiting: Sequence[QueueRow]
    """Of this project."""
    others: int
    """Jobs of other projects that wait."""
    used_s: float
    """Seconds that the project has had devices within 24 hours."""
    quota: TrainingQuota | None


def queue_of(project_id: int) -> QueueView:
    """Other projects are counted and not named."""
    held = {
        job.device: job
        for job in TrainingJob.objects.exclude(device="").exclude(state__in=ENDED_TRAINING_STATES)
    }
    waits = current_plan().waits
    mine = TrainingJob.objects.in_bulk(
        TrainingJob.objects.filter(pk__in=waits, project_id=project_id).values_list("pk", flat=True)
    )
    {name: job for name, job in held.items() if job.project_id == project_id}
    rows = [
        QueueRow(mine[pk], place, why)
        for place, (pk, why) in enumerate(waits.items(), start=1)
        if pk in mine
    ]
    return QueueView(
        devices=[
            DeviceRow(
                device=device,
                job=job
                if (job := held.get(device.name)) and job.project_id == project_id
                else None,
                is_taken=device.name in held,
            )
            for device in devices()
        ],
        waiting=rows,
        others=len(waits) - len(rows),
        used_s=used_s().get(project_id, 0.0),
        quota=quota_of(project_id),
    )


def quota_of(project_id: int) -> TrainingQuota | None:
    return TrainingQuota.objects.filter(project_id=project_id).first()


def sweeps_of(project_id: int) -> QuerySet[Sweep]:
    return (
        Sweep.objects.filter(project_id=project_id)
        .annotate(n=Count("jobs"), ended=Count("jobs", filter=Q(jobs__ended_at__isnull=False)))
        .order_by("-id")
    )


# --- one job -------------------------------------------------------------------------------------


def told(stream_id: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Steps, evaluations and failed attempts, each in order. One query; the later record of a step
    counts.
    """
    steps: dict[int, dict[str, Any]] = {}
    evaluations: dict[int, dict[str, Any]] = {}
    attempts: list[dict[str, Any]] = []
    kinds = ["train.step", "train.evaluated", "train.attempt"]
    for event in Event.objects.filter(stream_id=stream_id, kind__in=kinds).order_by("seq"):
        step = int(event.payload.get("step", event.seq))
        if event.kind == "train.step":
            steps[step] = event.payload
        elif event.kind == "train.evaluated":
            evaluations[step] = event.payload
        else:
            attempts.append({**event.payload, "at": event.at})
    return (
        [steps[step] for step in sorted(steps)],
        [evaluations[step] for step in sorted(evaluations)],
        attempts,
    )


def alarms_of(job: TrainingJob) -> list[TrainingAlarm]:
    return list(job.alarms.select_related("acknowledged_by"))


@dataclass(frozen=True)
class CheckpointRow:
    checkpoint: Checkpoint
    held_out: float | None
    n_scored: int
    is_chosen: bool
    is_kept: bool
    """Whether its adapter is still on disk, of this host or another."""


def checkpoints_of(job: TrainingJob) -> list[CheckpointRow]:
    """Those that are kept, were evaluated or were promoted; newest first."""
    measured = {
        each.step: each for each in job.runs.all() if each.kind == TrainingRunKind.EVALUATION
    }
    rows = []
    for checkpoint in job.checkpoints.select_related("promoted_as").order_by("-step"):
        found = measured.get(checkpoint.step)
        row = _row(checkpoint, job, found)
        if row.is_kept or found is not None or checkpoint.promoted_as or row.is_chosen:
            rows.append(row)
    return rows


def row_of(checkpoint: Checkpoint) -> CheckpointRow:
    job = checkpoint.training_job
    found = job.runs.filter(kind=TrainingRunKind.EVALUATION, step=checkpoint.step).last()
    return _row(checkpoint, job, found)


def _row(checkpoint: Checkpoint, job: TrainingJob, found: TrainingRun | None) -> CheckpointRow:
    return CheckpointRow(
        checkpoint=checkpoint,
        held_out=None if found is None else found.mean,
        n_scored=0 if found is None else found.n_scored,
        is_chosen=checkpoint.step == job.chosen_step,
        is_kept=is_kept(checkpoint),
    )


# --- groups --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupCell:
    """The rollouts of one task in one step."""

    step: int
    task: str
    scored: int
    errored: int
    low: float | None
    high: float | None

    @property
    def look(self) -> str:
        """spread, pass, fail, same or error."""
        if self.scored == 0 or self.low is None or self.high is None:
            return "error"
        if self.scored > 1 and self.low != self.high:
            return "spread"
        if self.low >= 1.0:
            return "pass"
        return "fail" if self.high <= 0.0 else "same"


LOOKS = {
    "spread": "rewards differ: it teaches the policy",
    "pass": "all right: nothing to tell apart",
    "fail": "all wrong: nothing to tell apart",
    "same": "all the same score",
    "error": "no scored rollout",
}


@dataclass(frozen=True)
class GroupMap:
    steps: Sequence[int]
    rows: Sequence[tuple[str, Sequence[GroupCell | None]]]
    """Task, and its cell in each of the steps."""
    counts: Mapping[str, int]
    """By look, over all steps of the job."""
    hidden: int
    """Tasks that are not on the map."""


def groups_of(job: TrainingJob) -> list[GroupCell]:
    """One query, in the order of steps and tasks."""
    rows = (
        Rollout.objects.filter(
            run__training_run__training_job=job, run__training_run__kind=TrainingRunKind.STEP
        )
        .order_by()
        .values("run__training_run__step", "task__key")
        .annotate(
            scored=Count("id", filter=Q(state=RolloutState.SCORED)),
            errored=Count("id", filter=Q(state=RolloutState.ERRORED)),
            low=Min("score"),
            high=Max("score"),
        )
        .order_by("run__training_run__step", "task__key")
    )
    return [
        GroupCell(
            step=row["run__training_run__step"],
            task=row["task__key"],
            scored=row["scored"],
            errored=row["errored"],
            low=row["low"],
            high=row["high"],
        )
        for row in rows
    ]


def group_map(cells: Sequence[GroupCell]) -> GroupMap | None:
    """Newest steps; tasks that taught least first."""
    if not cells:
        return None
    counts = {look: sum(cell.look == look for cell in cells) for look in LOOKS}
    steps = sorted({cell.step for cell in cells})[-MAP_STEPS:]
    by_task: dict[str, dict[int, GroupCell]] = defaultdict(dict)
    for cell in cells:
        if cell.step >= steps[0]:
            by_task[cell.task][cell.step] = cell

    def idle(task: str) -> tuple[float, str]:
        found = by_task[task].values()
        return -sum(cell.look != "spread" for cell in found) / len(found), task

    tasks = sorted(by_task, key=idle)
    rows = [(task, [by_task[task].get(step) for step in steps]) for task in tasks[:MAP_TASKS]]
    return GroupMap(steps, rows, counts, max(0, len(tasks) - MAP_TASKS))


@dataclass(frozen=True)
class Sibling:
    rollout: Rollout
    reward: float | None
    advantage: float | None
    turns: Sequence[tuple[str, str]]
    """Action and what the environment answered, step by step."""


@dataclass(frozen=True)
class Turn:
    number: int
    is_divergence: bool
    """The first in which not all siblings do the same."""
    cells: Sequence[tuple[str, str] | None]


@dataclass(frozen=True)
class GroupView:
    run: Run
    task: str
    prompt: str
    siblings: Sequence[Sibling]
    turns: Sequence[Turn]
    divergence: int | None
    has_spread: bool


def run_of_step(job: TrainingJob, step: int, kind: str = TrainingRunKind.STEP) -> Run | None:
    found = job.runs.select_related("run").filter(kind=kind, step=step).first()
    return None if found is None else found.run


def group_of(job: TrainingJob, step: int, task: str) -> GroupView | None:
    """The siblings of a task in a step, side by side; None where there are none."""
    asked = TrainingRun.objects.filter(
        training_job=job, kind=TrainingRunKind.STEP, step=step
    ).select_related("run")
    training_run = asked.first()
    if training_run is None:
        return None
    run = training_run.run
    rollouts = list(
        run.rollouts.filter(task__key=task)
        .select_related("task", "run__rubric_version")
        .order_by("replicate")
    )
    if not rollouts:
        return None
    worth = rewards(rollouts, left_out_of(training_run))
    values = [worth[rollout.pk] for rollout in rollouts]
    spec = advantage_of(job)
    advantages = group_advantages(groups=[task] * len(values), rewards=values, spec=spec)
    turns = _turns([rollout.stream_id for rollout in rollouts])
    siblings = [
        Sibling(rollout, value, advantage, turns.get(rollout.stream_id, []))
        for rollout, value, advantage in zip(rollouts, values, advantages, strict=True)
    ]
    table = _table(siblings)
    scored = [value for value in values if value is not None]
    return GroupView(
        run=run,
        task=task,
        prompt=rollouts[0].task.prompt,
        siblings=siblings,
        turns=table,
        divergence=next((turn.number for turn in table if turn.is_divergence), None),
        has_spread=len(set(scored)) > 1,
    )


def left_out_of(training_run: TrainingRun) -> Mapping[str, str]:
    """Criteria that the step learned nothing from; a climb keeps its own record."""
    climb_run = getattr(training_run.run, "climb_run", None)
    found: Mapping[str, str] = training_run.left_out if climb_run is None else climb_run.left_out
    return found


def advantage_of(job: TrainingJob) -> AdvantageSpec:
    """As the manifest says it, so that the page shows what was trained on."""
    values = job.manifest.get("objective", {}).get("advantage", {})
    return AdvantageSpec(mode=AdvantageMode(values.get("mode", AdvantageMode.CENTRE)))


def _turns(streams: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
    """By stream: what was done and what came of it. One query."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    events = Event.objects.filter(stream_id__in=streams, kind__in=["action", "observation"])
    for event in events.order_by("stream_id", "seq"):
        turns = found[event.stream_id]
        if event.kind == "action":
            turns.append((_cut(str(event.payload.get("text", ""))), ""))
        elif turns and not turns[-1][1]:
            text = "".join(
                str(part.get("text", "")) for part in event.payload.get("segments") or ()
            )
            turns[-1] = (turns[-1][0], _cut(text))
    return found


def _table(siblings: Sequence[Sibling]) -> list[Turn]:
    most = max((len(sibling.turns) for sibling in siblings), default=0)
    rows: list[Turn] = []
    has_diverged = False
    for index in range(most):
        cells = [s.turns[index] if index < len(s.turns) else None for s in siblings]
        differs = len({None if cell is None else cell[0].strip() for cell in cells}) > 1
        rows.append(Turn(index + 1, differs and not has_diverged, cells))
        has_diverged = has_diverged or differs
    return rows


def _cut(text: str) -> str:
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


# --- a step --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupRow:
    task: str
    cell: GroupCell
    rewards: Sequence[float | None]
    """In the order of replicates; None without a score."""


def step_groups(job: TrainingJob, run: Run, step: int) -> list[GroupRow]:
    """The groups of a step, those without spread last."""
    training_run = TrainingRun.objects.get(run=run)
    rollouts = list(
        run.rollouts.select_related("task", "run__rubric_version").order_by("task_id", "replicate")
    )
    worth = rewards(rollouts, left_out_of(training_run))
    by_task: dict[str, list[float | None]] = defaultdict(list)
    for rollout in rollouts:
        by_task[rollout.task.key].append(worth[rollout.pk])
    rows = []
    for task, values in by_task.items():
        scored = [v for v in values if v is not None and math.isfinite(v)]
        cell = GroupCell(
            step,
            task,
            len(scored),
            len(values) - len(scored),
            min(scored, default=None),
            max(scored, default=None),
        )
        rows.append(GroupRow(task, cell, values))
    return sorted(rows, key=lambda row: (row.cell.look != "spread", row.task))


def why_it_waits(job: TrainingJob) -> str:
    """Of a job without a device."""
    return job.pause_reason or current_plan().waits.get(job.pk, "It is about to get a device.")
