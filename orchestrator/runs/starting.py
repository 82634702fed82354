"""Starting a run by hand: some tasks of a split, one harness, one model."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from optimizer.store import store_harness
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.environments.queries import task_keys
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs.limits import LimitReached
from orchestrator.runs.models import Purpose, Run
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run
from rubrics.models import RubricVersion

MAX_ROLLOUTS = 20_000
OPEN_SPLITS = (Split.TRAIN, Split.SELECT)
"""`test` is sealed: it is read once for each claim, by a climb or a gate."""


class RunRefused(ValueError):
    """A run cannot be started as asked; `field` is the form's."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Asked:
    version: EnvironmentVersion
    split: str
    rubric_version: RubricVersion
    model: ModelEndpoint
    harness: HarnessVersion | None
    """None: a harness that adds nothing."""
    n_tasks: int | None = None
    """The first so many; None: all."""
    replicates: int = 1
    concurrency: int = 32
    label: str = ""


@dataclass(frozen=True)
class Planned:
    asked: Asked
    tasks: Sequence[Task]

    @property
    def n_rollouts(self) -> int:
        return len(self.tasks) * self.asked.replicates


def start_run_by_hand(*, actor: User, project: Project, asked: Asked) -> Run:
    """Queues the run. Raises RunRefused, which names the field."""
    return start_planned(actor=actor, project=project, planned=plan_of(asked))


def plan_of(asked: Asked) -> Planned:
    """What such a run would do: tasks of a version never change, so this needs no transaction.

    Raises RunRefused.
    """
    if asked.split not in OPEN_SPLITS:
        raise RunRefused("split", "The test split is sealed: climbs and gates read it.")
    tasks = task_keys(asked.version.pk, asked.split, asked.n_tasks)
    if not tasks:
        raise RunRefused("split", f"This version has no tasks in the split {asked.split}.")
    planned = Planned(asked, tasks)
    if planned.n_rollouts > MAX_ROLLOUTS:
        raise RunRefused(
            "replicates", f"{planned.n_rollouts:,} rollouts; a run has at most {MAX_ROLLOUTS:,}."
        )
    return planned


def start_planned(*, actor: User, project: Project, planned: Planned) -> Run:
    """Raises RunRefused; the transaction around it, if there is one, is then undone."""
    require(actor, project, Role.EDITOR)
    try:
        return _start(project, planned.asked, planned.tasks)
    except LimitReached as reached:
        raise RunRefused("n_tasks", str(reached)) from reached


def _start(project: Project, asked: Asked, tasks: Sequence[Task]) -> Run:
    with transaction.atomic(savepoint=False):
        harness = asked.harness or store_harness(
            project_id=project.pk, harness=Harness(), label="plain"
        )
        run = create_run(
            spec=RunSpec(
                project=project,
                purpose=Purpose.EVALUATE,
                label=asked.label or f"{asked.version.environment.name}: {asked.split}",
                environment_version=asked.version,
                rubric_version=asked.rubric_version,
                model=asked.model,
                seed=secrets.randbits(31),
                concurrency=asked.concurrency,
            ),
            plan=[
                PlannedRollout(harness.pk, task, replicate)
                for replicate in range(asked.replicates)
                for task in tasks
            ],
        )
        return start_run(run=run)
