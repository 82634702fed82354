"""What pages and the API read of runs and rollouts.

A mean never travels without its counts: `Tally` is the one object that carries both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Avg, Count, OuterRef, QuerySet, Subquery, Sum

from optimizer.statistics import wilson_interval
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.events.models import Event
from orchestrator.prepared import Prepared
from orchestrator.runs.models import Rollout, RolloutState, Run
from rubrics.models import RubricVersion


@dataclass(frozen=True)
class Tally:
    """Counts of a set of rollouts and the mean of those that have a score."""

    planned: int
    running: int
    scored: int
    errored: int
    not_applicable: int
    cancelled: int
    mean: float | None
    """Mean of the scored ones, None when there are none."""
    passed: int
    """Scored at or above 0.5."""
    tokens: int
    cost_usd: float

    @property
    def done(self) -> int:
        return self.scored + self.errored + self.not_applicable + self.cancelled

    @property
    def coverage(self) -> float:
        """Share of the ended rollouts that could be scored, 0 to 1; 1 when none has ended."""
        attempted = self.scored + self.errored
        return self.scored / attempted if attempted else 1.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson interval of the pass rate, 95 %."""
        return wilson_interval(self.passed, self.scored) if self.scored else None


EMPTY_TALLY = Tally(0, 0, 0, 0, 0, 0, None, 0, 0, 0.0)


_TALLIES = f"""
    SELECT run_id, COUNT(*),
      COUNT(*) FILTER (WHERE state IN ('{RolloutState.RUNNING}', '{RolloutState.JUDGING}')),
      COUNT(*) FILTER (WHERE state = '{RolloutState.SCORED}'),
      COUNT(*) FILTER (WHERE state = '{RolloutState.ERRORED}'),
      COUNT(*) FILTER (WHERE state = '{RolloutState.NOT_APPLICABLE}'),
      COUNT(*) FILTER (WHERE state = '{RolloutState.CANCELLED}'),
      SUM(score), COUNT(*) FILTER (WHERE score >= 0.5),
      COALESCE(SUM(tokens_in) + SUM(tokens_out), 0), COALESCE(SUM(cost_usd), 0)
    FROM {Rollout._meta.db_table} WHERE NOT is_replaced AND run_id IN (%s) GROUP BY run_id
"""
"""Written out, since it is asked with every list: Django needs longer to compose it than a database
to answer it.
"""


def tallies(run_ids: Iterable[int]) -> dict[int, Tally]:
    """One query for any number of runs."""
    ids = list(run_ids)
    if not ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_TALLIES % ", ".join(["%s"] * len(ids)), ids)
        rows = cursor.fetchall()
    found = {}
    for run_id, *counts, total, passed, tokens, cost in rows:
        planned, running, scored, errored, not_applicable, cancelled = counts
        found[run_id] = Tally(
            planned=planned,
            running=running,
            scored=scored,
            errored=errored,
            not_applicable=not_applicable,
            cancelled=cancelled,
            mean=total / scored if scored else None,
            passed=passed,
            tokens=int(tokens),
            cost_usd=float(cost),
        )
    return found


def tally(run_id: int) -> Tally:
    return tallies([run_id]).get(run_id, EMPTY_TALLY)


_NAMING: dict[str, Prepared[Any]] = {
    "environment_version": Prepared(
        lambda ids: (
            EnvironmentVersion.objects.select_related("environment")
            .only("number", "environment__slug", "environment__name")
            .filter(pk__in=ids)
        ),
        ids=list,
    ),
    "rubric_version": Prepared(
        lambda ids: (
            RubricVersion.objects.select_related("rubric")
            .only("number", "rubric__name")
            .filter(pk__in=ids)
        ),
        ids=list,
    ),
    "model": Prepared(lambda ids: ModelEndpoint.objects.only("name").filter(pk__in=ids), ids=list),
}


def name_parts(runs: Sequence[Run]) -> None:
    """Reads what names the runs of a page: often the same, so not joined to each row. Three
    queries; of those objects only what names them.
    """
    for name, query in _NAMING.items():
        ids = {getattr(run, f"{name}_id") for run in runs}
        found = {each.pk: each for each in query.all(ids=list(ids))}
        for run in runs:
            setattr(run, name, found[getattr(run, f"{name}_id")])


@dataclass(frozen=True)
class RunRow:
    run: Run
    tally: Tally


def runs_in(project_id: int, *, purpose: str = "", state: str = "") -> QuerySet[Run]:
    """Runs of a project with what names them, in no order."""
    query = Run.objects.filter(project_id=project_id).select_related(
        "environment_version__environment", "rubric_version__rubric", "model"
    )
    if purpose:
        query = query.filter(purpose=purpose)
    return query.filter(state=state) if state else query


def list_runs(
    project_id: int,
    *,
    purpose: str = "",
    state: str = "",
    limit: int = 100,
    before_id: int | None = None,
) -> list[RunRow]:
    """Newest first, in two queries; `before_id` is the keyset of the next page."""
    query = runs_in(project_id, purpose=purpose, state=state)
    if before_id is not None:
        query = query.filter(id__lt=before_id)
    runs = list(query.order_by("-id")[:limit])
    counted = tallies(run.pk for run in runs)
    return [RunRow(run=run, tally=counted.get(run.pk, EMPTY_TALLY)) for run in runs]


def capacity_text(run: Run) -> str:
    """How full the run's servers were when it last told; empty for a run that has ended."""
    if run.has_ended:
        return ""
    told = Event.objects.filter(stream_id=run.stream_id, kind="capacity").order_by("-seq")
    payload = told.values_list("payload", flat=True).first()
    return str(payload["text"]) if payload else ""


def rollouts_of(run_id: int) -> QuerySet[Rollout]:
    return Rollout.objects.filter(run_id=run_id).select_related("task", "harness").order_by("id")


def rollouts_in(project_id: int) -> QuerySet[Rollout]:
    """Rollouts of a project, also those that a retry has replaced."""
    return Rollout.everything.filter(run__project_id=project_id).select_related(
        "task", "harness", "run"
    )


def counted_rollouts_in(project_id: int) -> QuerySet[Rollout]:
    """Rollouts of a project without those that a retry has replaced."""
    return Rollout.objects.filter(run__project_id=project_id).select_related("run")


def rollouts_to_read(project_id: int) -> QuerySet[Rollout]:
    """Rollouts of a project, replaced ones too, with all that their transcripts are made of."""
    return Rollout.everything.filter(run__project_id=project_id).select_related(
        "task", "stream", "run__rubric_version__rubric"
    )


@dataclass(frozen=True)
class RolloutDetail:
    rollout: Rollout
    verdicts: Sequence[Any]
    token_counts: dict[str, int]
    """Tokens by kind, over all rows; empty when the endpoint gave no token ids."""
    previous_id: int | None
    next_id: int | None


def rollouts_by_stream(stream_ids: Iterable[int]) -> dict[int, int]:
    """Ids of rollouts by the streams of their events; streams of other things are left out."""
    found = Rollout.objects.filter(stream_id__in=set(stream_ids))
    return dict(found.values_list("stream_id", "pk"))


def rollout_detail(rollout_id: int) -> RolloutDetail:
    rollout = Rollout.everything.select_related(
        "run__environment_version__environment",
        "run__rubric_version__rubric",
        "run__model",
        "task",
        "harness",
        "stream",
        "retry",
    ).get(pk=rollout_id)
    counts: dict[str, int] = {}
    for kinds in rollout.token_rows.values_list("kinds", flat=True):
        for kind, count in kinds:
            counts[kind] = counts.get(kind, 0) + count
    siblings = Rollout.objects.filter(run_id=rollout.run_id)
    return RolloutDetail(
        rollout=rollout,
        verdicts=list(rollout.verdicts.all()),
        token_counts=counts,
        previous_id=siblings.filter(pk__lt=rollout_id)
        .order_by("-pk")
        .values_list("pk", flat=True)
        .first(),
        next_id=siblings.filter(pk__gt=rollout_id)
        .order_by("pk")
        .values_list("pk", flat=True)
        .first(),
    )


def rollout_row(rollout: Rollout) -> dict[str, Any]:
    """One row of the live table, as pages draw it and as the run's events carry it."""
    return {
        "id": rollout.pk,
        "task": rollout.task.key,
        "family": rollout.task.family,
        "split": rollout.task.split,
        "replicate": rollout.replicate,
        "harness": rollout.harness.short,
        "state": rollout.state,
        "score": finite_or_none(rollout.score),
        "answer": rollout.answer,
        "steps": rollout.n_steps,
        "tokens": rollout.tokens_in + rollout.tokens_out,
        "latency_s": rollout.latency_s,
        "attempt": rollout.attempt,
        "cause": rollout.cause,
        "message": rollout.message,
        "is_replaced": rollout.is_replaced,
    }


def started_payload(
    rollout: Rollout,
    attempt: int,
    messages: Sequence[Mapping[str, str]],
    *,
    model: ModelEndpoint | None = None,
) -> dict[str, Any]:
    """What the first event of a rollout carries. `model`: where it is not the run's."""
    run = rollout.run
    is_other = model is not None and model.pk != run.model_id
    model = model if model is not None and is_other else run.model
    return {
        "attempt": attempt,
        "task": rollout.task.key,
        "family": rollout.task.family,
        "prompt": rollout.task.prompt,
        "harness": rollout.harness.short,
        "model": model.name,
        "weight_version": model.model if is_other else run.adapter_name or model.model,
        "seed": rollout.seed,
        "messages": list(messages),
    }


def ended_payload(rollout: Rollout) -> dict[str, Any]:
    """What the last event of a rollout carries."""
    return {
        "state": rollout.state,
        "score": rollout.score,
        "reward": rollout.reward,
        "cause": rollout.cause,
        "message": rollout.message,
        "steps": rollout.n_steps,
        "tokens_in": rollout.tokens_in,
        "tokens_out": rollout.tokens_out,
        "latency_s": rollout.latency_s,
    }


def progress_of(rollout: Rollout) -> tuple[int, str]:
    """What an interrupted rollout had done, by its trace: answered steps, and what was going on."""
    if rollout.state == RolloutState.PENDING:
        return 0, "before it started"
    if rollout.state == RolloutState.JUDGING:
        return rollout.n_steps, "before its group was judged"
    told = Event.objects.filter(stream_id=rollout.stream_id, kind__in=("action", "observation"))
    events = list(told.order_by("seq").values_list("kind", "payload"))
    n_steps = sum(kind == "observation" and not p.get("refused") for kind, p in events)
    if events and events[-1][0] == "action":
        return n_steps, f"during step {events[-1][1]['step']}"
    return n_steps, f"after step {n_steps}" if n_steps else "before step 1"


def finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def score_pairs(
    run_a: int, harness_a: int, run_b: int, harness_b: int
) -> list[tuple[str, int, float | None, float | None]]:
    """(task key, replicate, score of a, score of b) for each (task, replicate) planned in both
    runs.

    None where a rollout has no score; pairs present on one side only are left out.
    """

    def scores(run_id: int, harness_id: int) -> dict[tuple[str, int], float | None]:
        return {
            (key, replicate): score
            for key, replicate, score in Rollout.objects.filter(
                run_id=run_id, harness_id=harness_id
            ).values_list("task__key", "replicate", "score")
        }

    left, right = scores(run_a, harness_a), scores(run_b, harness_b)
    return [(*key, left[key], right[key]) for key in sorted(left.keys() & right.keys())]


def with_sums(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Runs with the sums of their rollouts, to filter and sort by: `mean_score`, counts, cost."""

    def of_rollouts(number: Any, **only: str) -> Subquery:
        rows = Rollout.objects.filter(run=OuterRef("pk"), **only).order_by().values("run_id")
        return Subquery(rows.annotate(number=number).values("number"))

    return runs.alias(
        mean_score=of_rollouts(Avg("score")),
        n_scored=of_rollouts(Count("pk"), state=RolloutState.SCORED),
        n_errored=of_rollouts(Count("pk"), state=RolloutState.ERRORED),
        n_rollouts=of_rollouts(Count("pk")),
        sum_cost=of_rollouts(Sum("cost_usd")),
    )
