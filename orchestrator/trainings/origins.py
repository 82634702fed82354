"""Who a training job is for: where its rollouts come from and who hears of it.

A climb's rung and a job of its own differ in how they ask for runs (a climb counts them in its
budget), in what they learn from, and in what follows when the job ends. The keeper knows neither:
it speaks to an `Origin`, found by the job's `origin`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from optimizer.models import HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion, Task
from orchestrator.events.services import Fence, NewEvent
from orchestrator.runs.models import Run
from orchestrator.runs.services import PlannedRollout
from orchestrator.trainings.settings import TrainSettings
from rubrics.models import RubricVersion
from training.models import TrainingJob


@dataclass(frozen=True)
class Work:
    """What a job trains on, and how."""

    environment_version: EnvironmentVersion
    rubric_version: RubricVersion
    model: ModelEndpoint
    harness: HarnessVersion
    settings: TrainSettings
    seed: int


@dataclass(frozen=True)
class Asked:
    """A run that the job needs."""

    kind: str
    """Of `TrainingRunKind`."""
    step: int
    key: str
    label: str
    purpose: str
    plan: Sequence[PlannedRollout]
    seed_parts: Sequence[object]
    adapter_name: str
    adapter_path: str


class Origin(Protocol):
    """Of one job; made anew for each attempt."""

    work: Work

    def tasks(self, step: int) -> list[Task]:
        """What the step trains on; the same however often it is asked."""

    def ask(self, asked: Asked, fence: Fence) -> Run:
        """The run of this key, made where there is none; it is not queued."""

    def rewards(self, run: Run) -> Mapping[int, float | None]:
        """By rollout, what each is worth to whoever learns."""

    def tell(self, events: Sequence[NewEvent], fence: Fence | None) -> None:
        """News of the job, beside its own stream. Needs a transaction."""

    def pause(self, reason: str, fence: Fence | None) -> None:
        """Needs a transaction."""

    def ended(self, job: TrainingJob) -> None:
        """The job has ended, however. Needs a transaction."""


_makers: dict[str, Callable[[TrainingJob], Origin]] = {}
_waits: dict[str, Callable[[int], bool]] = {}


def register(
    name: str,
    make: Callable[[TrainingJob], Origin],
    *,
    is_waiting: Callable[[int], bool] = lambda _: False,
) -> None:
    """`is_waiting` says by a job's id whether what asked for it must not go on now."""
    _makers[name] = make
    _waits[name] = is_waiting


def is_waiting(job: TrainingJob) -> bool:
    """Whether what asked for the job is paused. At most one query."""
    return _waits[job.origin](job.pk)


def origin_of(job: TrainingJob) -> Origin:
    """Raises LookupError if what asked for the job is gone."""
    return _makers[job.origin](job)
