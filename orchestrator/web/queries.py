"""What only pages read: counts for the rail, filtered lists, harness texts side by side.

Everything that the API or a command reads too lives in the app that owns it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, IntegerField, Model, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from optimizer.models import Blob, Comparison, HarnessVersion, Search, SearchState
from orchestrator.climbs.models import ENDED_CLIMB_STATES, Climb, ClimbRun, ClimbState, Rung
from orchestrator.environments.models import Environment, EnvironmentVersion, Split, Task
from orchestrator.events.models import Event, Stream
from orchestrator.grading.hacking import PAUSE
from orchestrator.grading.models import HackingAlarm
from orchestrator.projects.models import ApiToken, Invitation, Membership, Project, User
from orchestrator.review.queries import n_to_review
from orchestrator.runs.models import Rollout, Run, RunState
from orchestrator.runs.queries import EMPTY_TALLY, RunRow, tallies
from rubrics.models import Rubric
from training.models import TrainingJob, TrainingState

LIVE_SEARCHES = (
    SearchState.QUEUED,
    SearchState.RUNNING,
    SearchState.PAUSED,
    SearchState.AWAITING_APPROVAL,
)
LIVE_CLIMBS = (ClimbState.QUEUED, ClimbState.RUNNING, ClimbState.PAUSED)


@dataclass(frozen=True)
class RailCounts:
    """Work in progress, which is what a count in the rail means."""

    runs: int = 0
    climbs: int = 0
    training: int = 0
    searches: int = 0
    """Not those of climbs, which count as climbs."""
    review: int = 0
    warnings: int = 0
    """Alarms of the watch that nobody has acknowledged."""
    pauses: int = 0
    """Those of them that paused a climb."""


def rail_counts(project_id: int, reviewer: User | None) -> RailCounts:
    """One query. `reviewer`: whose review items are counted; None for who may not review."""

    def running(model: type[Model], states: Sequence[str], **filters: object) -> Coalesce:
        rows = (
            model._default_manager.filter(project_id=OuterRef("pk"), state__in=states, **filters)
            .order_by()
            .values("project_id")
            .annotate(n=Count("pk"))
            .values("n")
        )
        return Coalesce(Subquery(rows, output_field=IntegerField()), 0)

    def unseen(**filters: str) -> Coalesce:
        rows = (
            HackingAlarm.objects.filter(
                project_id=OuterRef("pk"), acknowledged_at__isnull=True, **filters
            )
            .order_by()
            .values("project_id")
            .annotate(n=Count("pk"))
            .values("n")
        )
        return Coalesce(Subquery(rows, output_field=IntegerField()), 0)

    row = (
        Project.objects.filter(pk=project_id)
        .annotate(
            live_runs=running(Run, [RunState.RUNNING, RunState.QUEUED]),
            live_climbs=running(Climb, LIVE_CLIMBS),
            live_training=running(TrainingJob, [TrainingState.RUNNING, TrainingState.QUEUED]),
            live_searches=running(
                Search, LIVE_SEARCHES, rung=None, climb=None, stream__isnull=False
            ),
            to_review=n_to_review(reviewer) if reviewer else Value(0),
            warnings=unseen(),
            pauses=unseen(level=PAUSE),
        )
        .values_list(
            "live_runs",
            "live_climbs",
            "live_training",
            "live_searches",
            "to_review",
            "warnings",
            "pauses",
        )
        .first()
    )
    return RailCounts(*row) if row else RailCounts()


# --- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunPage:
    rows: Sequence[RunRow]
    harnesses: Mapping[int, Sequence[str]]
    """Short hashes of the harnesses of each run; several while a search screens candidates."""


def run_page(project_id: int, *, limit: int) -> RunPage:
    """The newest, three queries."""
    newest = Run.objects.filter(project_id=project_id).select_related(
        "environment_version__environment", "rubric_version__rubric", "model"
    )
    return run_page_of(list(newest.order_by("-id")[:limit]))


def run_page_of(runs: Sequence[Run]) -> RunPage:
    """Tallies and harnesses of these runs, two queries."""
    counted = tallies(run.pk for run in runs)
    return RunPage(
        rows=[RunRow(run, counted.get(run.pk, EMPTY_TALLY)) for run in runs],
        harnesses=harnesses_of(run.pk for run in runs),
    )


def harnesses_of(run_ids: Iterable[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    rows = (
        Rollout.objects.filter(run_id__in=list(run_ids))
        .order_by("run_id", "harness_id")
        .values_list("run_id", "harness__sha256")
        .distinct()
    )
    for run_id, sha256 in rows:
        found[run_id].append(f"h_{sha256[:8]}")
    return dict(found)


def count_runs(project_id: int) -> int:
    return Run.objects.filter(project_id=project_id).count()


def climb_of_run(run_id: int) -> ClimbRun | None:
    return ClimbRun.objects.select_related("climb").filter(run_id=run_id).first()


def families_of_run(run_id: int) -> list[str]:
    families = Rollout.objects.filter(run_id=run_id).order_by("task__family")
    return [name for name in families.values_list("task__family", flat=True).distinct() if name]


# --- traces ----------------------------------------------------------------------------------


def events_of(stream_id: int, *, after: int = 0, limit: int | None = None) -> list[Event]:
    query = Event.objects.filter(stream_id=stream_id, seq__gt=after).order_by("seq")
    return list(query if limit is None else query[:limit])


def token_rows(rollout_id: int) -> list[Any]:
    return list(Rollout.objects.get(pk=rollout_id).token_rows.all())


# --- ladder ----------------------------------------------------------------------------------


def harness_texts(harness_ids: Iterable[int | None]) -> dict[int, dict[str, str]]:
    """Harness id -> component key -> text. Two queries."""
    versions = list(
        HarnessVersion.objects.filter(pk__in=[pk for pk in harness_ids if pk is not None])
    )
    hashes = {sha for version in versions for sha in version.components.values()}
    texts = dict(Blob.objects.filter(pk__in=hashes).values_list("pk", "text"))
    return {
        version.pk: {key: texts.get(sha, "") for key, sha in sorted(version.components.items())}
        for version in versions
    }


def current_climb(project_id: int) -> Climb | None:
    """The one in progress, else the newest."""
    query = Climb.objects.filter(project_id=project_id).select_related(
        "environment_version__environment", "rubric_version__rubric", "model", "stream"
    )
    return (
        query.filter(state__in=LIVE_CLIMBS).order_by("-pk").first() or query.order_by("-pk").first()
    )


def last_climbs(project_id: int, *, but: int | None, limit: int = 4) -> list[Climb]:
    """The newest that have ended, without `but`. Two queries."""
    query = Climb.objects.filter(project_id=project_id, state__in=ENDED_CLIMB_STATES)
    return list(
        query.exclude(pk=but or 0)
        .select_related("environment_version__environment", "rubric_version__rubric", "model")
        .prefetch_related("rungs")
        .order_by("-pk")[:limit]
    )


def rungs_of(climb_id: int) -> list[Rung]:
    return list(
        Rung.objects.filter(climb_id=climb_id)
        .select_related("harness", "test_run", "comparison")
        .order_by("index")
    )


def comparisons_of(search_id: int | None) -> list[Comparison]:
    if search_id is None:
        return []
    return list(Comparison.objects.filter(search_id=search_id).order_by("pk"))


# --- environments ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskPage:
    tasks: Sequence[Task]
    after: str
    """Keyset of the next page, empty on the last one."""


def task_page(
    version_id: int, *, split: str = "", family: str = "", after: str = "", limit: int = 60
) -> TaskPage:
    query = Task.objects.filter(version_id=version_id).defer("spec", "reference", "reset")
    if split:
        query = query.filter(split=split)
    if family:
        query = query.filter(family=family)
    if after:
        query = query.filter(key__gt=after)
    tasks = list(query.order_by("key")[: limit + 1])
    more, tasks = len(tasks) > limit, tasks[:limit]
    return TaskPage(tasks=tasks, after=tasks[-1].key if more else "")


@dataclass(frozen=True)
class TaskRecord:
    """How a task went so far: mean over scored rollouts with its counts."""

    scored: int
    errored: int
    mean: float | None


def task_records(task_ids: Iterable[int]) -> dict[int, TaskRecord]:
    rows = (
        Rollout.objects.filter(task_id__in=list(task_ids))
        .order_by()
        .values("task_id")
        .annotate(
            scored=Count("pk", filter=Q(state="scored")),
            errored=Count("pk", filter=Q(state="errored")),
            mean=Avg("score"),
        )
    )
    return {row["task_id"]: TaskRecord(row["scored"], row["errored"], row["mean"]) for row in rows}


def rollouts_of_task(task_id: int, *, limit: int = 20) -> list[Rollout]:
    return list(
        Rollout.objects.filter(task_id=task_id)
        .select_related("run", "harness")
        .order_by("-pk")[:limit]
    )


def versions_of(environment_id: int) -> list[EnvironmentVersion]:
    return list(
        EnvironmentVersion.objects.filter(environment_id=environment_id)
        .annotate(n_tasks=Count("tasks"))
        .order_by("-number")
    )


@dataclass(frozen=True)
class EnvironmentCard:
    environment: Environment
    version: EnvironmentVersion | None
    tasks: Mapping[str, int]
    """Tasks of the newest version, by split."""
    families: int

    @property
    def total(self) -> int:
        return sum(self.tasks.values())


def environment_cards(project_id: int) -> list[EnvironmentCard]:
    """Three queries, whatever the number of environments."""
    environments = list(Environment.objects.filter(project_id=project_id).order_by("name"))
    newest: dict[int, EnvironmentVersion] = {}
    for version in EnvironmentVersion.objects.filter(environment__in=environments).order_by(
        "number"
    ):
        newest[version.environment_id] = version
    counts: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(Split.values, 0))
    families: dict[int, set[str]] = defaultdict(set)
    rows = (
        Task.objects.filter(version__in=[version.pk for version in newest.values()])
        .order_by()
        .values_list("version_id", "split", "family")
        .annotate(n=Count("pk"))
    )
    for version_id, split, family, n in rows:
        counts[version_id][split] += n
        families[version_id].add(family)
    cards = []
    for environment in environments:
        version_or_none = newest.get(environment.pk)
        key = version_or_none.pk if version_or_none else 0
        cards.append(
            EnvironmentCard(environment, version_or_none, dict(counts[key]), len(families[key]))
        )
    return cards


# --- rubrics, training, settings -------------------------------------------------------------


def rubrics_of(project_id: int) -> QuerySet[Rubric]:
    return (
        Rubric.objects.filter(project_id=project_id).prefetch_related("versions").order_by("name")
    )


def training_jobs_of(project_id: int, *, limit: int = 50) -> list[TrainingJob]:
    return list(TrainingJob.objects.filter(project_id=project_id).order_by("-pk")[:limit])


def training_steps(stream_id: int) -> list[dict[str, Any]]:
    """Metrics of each step. After a resume a step may be there twice: the later attempt counts."""
    latest: dict[int, dict[str, Any]] = {}
    for event in Event.objects.filter(stream_id=stream_id, kind="train.step").order_by("seq"):
        latest[int(event.payload.get("step", event.seq))] = event.payload
    return [latest[step] for step in sorted(latest)]


def members_of(project_id: int) -> list[Membership]:
    return list(
        Membership.objects.filter(project_id=project_id)
        .select_related("user")
        .order_by("user__username")
    )


def invitations_of(project_id: int) -> list[Invitation]:
    """Links that can still be used, newest first."""
    return list(
        Invitation.objects.filter(
            project_id=project_id, accepted_at=None, revoked_at=None, expires_at__gt=timezone.now()
        )
        .select_related("created_by")
        .order_by("-pk")
    )


def tokens_of(project_id: int) -> list[ApiToken]:
    return list(
        ApiToken.objects.filter(project_id=project_id).select_related("user").order_by("-pk")
    )


def last_seq(stream_id: int) -> int:
    return Stream.objects.values_list("last_seq", flat=True).get(pk=stream_id)


def climb_of_training(job_id: int) -> Climb | None:
    return (
        Climb.objects.select_related("rubric_version__rubric")
        .filter(training_job_id=job_id)
        .first()
    )
