"""What the pages read of tryouts."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.utils import timezone

from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.events.models import Event
from orchestrator.jobs.models import JobState
from orchestrator.tryouts.models import LIVE_STATES, CommandState, Tryout, TryoutCommand
from orchestrator.tryouts.play import Play, fold
from rubrics.models import RubricVersion

TASKS_SHOWN = 60


@dataclass(frozen=True)
class TaskChoice:
    tasks: list[Task]
    """The first that match, playable splits before the sealed one."""
    total: int
    """All that match."""


def tryouts_in(project_id: int) -> QuerySet[Tryout]:
    tryouts = Tryout.objects.filter(version__environment__project_id=project_id)
    return tryouts.select_related(
        *("version__environment__project", "task", "user"),
        *("job", "stream", "rubric_version__rubric"),
    )


def play_of(tryout: Tryout) -> Play:
    return fold(Event.objects.filter(stream_id=tryout.stream_id).order_by("seq"))


def pending_commands(tryout_id: int) -> list[TryoutCommand]:
    return list(
        TryoutCommand.objects.filter(tryout_id=tryout_id, state=CommandState.PENDING).order_by("id")
    )


def is_silent(tryout: Tryout) -> bool:
    """Whether the worker that holds the session has not renewed its lease in time."""
    job = tryout.job
    return (
        tryout.is_live
        and job is not None
        and job.state == JobState.RUNNING
        and job.lease_until < timezone.now()
    )


def tasks_to_try(version_id: int, *, find: str = "") -> TaskChoice:
    """Tasks whose key, group or prompt has the text."""
    tasks = Task.objects.filter(version_id=version_id)
    if find:
        tasks = tasks.filter(
            Q(key__icontains=find) | Q(family__icontains=find) | Q(prompt__icontains=find)
        )
    order = {Split.TRAIN: 0, Split.SELECT: 1, Split.TEST: 2}
    found: list[Task] = []
    for split in sorted(order, key=lambda item: order[item]):
        room = TASKS_SHOWN - len(found)
        if room > 0:
            found += tasks.filter(split=split).only("key", "split", "family", "prompt")[:room]
    return TaskChoice(found, tasks.count())


def task_by_key(version: EnvironmentVersion, key: str) -> Task | None:
    return Task.objects.filter(version=version, key=key).first() if key else None


def newest_rubrics(project_id: int) -> list[RubricVersion]:
    """The newest version of each rubric of the project."""
    versions = (
        RubricVersion.objects.filter(rubric__project_id=project_id)
        .select_related("rubric")
        .order_by("rubric__name", "-number")
    )
    newest: dict[int, RubricVersion] = {}
    for version in versions:
        newest.setdefault(version.rubric_id, version)
    return list(newest.values())


def rubric_version_in(project_id: int, version_id: int) -> RubricVersion | None:
    return RubricVersion.objects.filter(pk=version_id, rubric__project_id=project_id).first()


def latest_tryouts(environment_id: int, *, limit: int = 12) -> QuerySet[Tryout]:
    return Tryout.objects.filter(version__environment_id=environment_id).select_related(
        "user", "task", "version"
    )[:limit]


def live_tryouts(project_id: int) -> list[Tryout]:
    """Those that hold the project's slots, in the order of their start."""
    found = Tryout.objects.filter(
        version__environment__project_id=project_id, state__in=LIVE_STATES
    ).select_related("user", "task", "version__environment")
    return list(found.order_by("pk"))
