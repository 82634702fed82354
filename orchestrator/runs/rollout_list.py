"""The list of a project's rollouts: filtered, sorted, paged, and what the filtered set amounts to.

Two queries whatever the number of rows: a page, and the counts by state and score of all that the
filter finds. Texts are cut in the database; a list never reads a long answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import (
    Count,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
)
from django.db.models.functions import Substr

from orchestrator.runs.filtering.compiling import condition
from orchestrator.runs.filtering.fields import ROLLOUTS
from orchestrator.runs.filtering.grammar import parse
from orchestrator.runs.filtering.paging import Key, Page, page_of
from orchestrator.runs.models import Rollout, RolloutState, Run, VerdictRecord

TEXT_CHARS = 400
"""Of answers and reasons; pages cut further, between characters."""
MANY = 5_000
"""From here on a list is walked in order instead of being sorted."""
N_BINS = 10
SORTS: Mapping[str, Key] = {
    "id": Key("id", is_scattered=True),
    "score": Key("score", is_nullable=True),
    "task": Key("task__key"),
    "steps": Key("n_steps"),
    "tokens": Key(F("tokens_in") + F("tokens_out")),
    "cost": Key("cost_usd"),
    "latency": Key("latency_s", is_nullable=True),
    "started": Key("started_at", is_nullable=True, is_time=True),
}
DEFAULT_SORT = "-id"
_READ = (
    "replicate",
    "state",
    "score",
    "reward",
    "cause",
    "attempt",
    "n_steps",
    "tokens_in",
    "tokens_out",
    "cost_usd",
    "latency_s",
    "weight_version",
    "started_at",
    "task__key",
    "task__family",
    "task__split",
    "harness__sha256",
    "stream__last_seq",
    "run__label",
    "run__purpose",
    "run__model__name",
    "run__environment_version__number",
    "run__environment_version__environment__slug",
    "run__rubric_version__number",
    "run__rubric_version__rubric__name",
)


def rollouts_matching(project_id: int, text: str, *, in_order: bool = False) -> QuerySet[Rollout]:
    """FilterError when the filter cannot be read.

    `in_order`: many are found, so that walking an index in the order of the list and leaving out
    what does not match beats finding all and sorting them. SQLite knows no such numbers by itself.
    """
    where = condition(parse(text), ROLLOUTS, project_id=project_id, is_common=in_order)
    mine: QuerySet[Rollout]
    if in_order and connection.vendor == "sqlite":
        # A sum is nothing that an index of runs could serve, which would bring them unordered.
        runs = Run.objects.filter(project_id=project_id).order_by().values("pk")
        numbered: Any = Rollout.objects.annotate(of_run=F("run_id") + 0)
        mine = numbered.filter(of_run__in=runs)
    else:
        mine = Rollout.objects.filter(run__project_id=project_id)
    return mine.filter(where)


def list_rollouts(
    query: QuerySet[Rollout],
    *,
    sort: str = DEFAULT_SORT,
    after: str = "",
    before: str = "",
    limit: int = 50,
    criteria: Sequence[str] = (),
) -> Page[Rollout]:
    """One query. Rows carry `short_answer` and `short_message` instead of the whole texts."""
    rows = with_verdicts(drawn(query), criteria)
    return page_of(rows, SORTS, sort, after=after, before=before, limit=limit)


def drawn(query: QuerySet[Rollout]) -> QuerySet[Rollout]:
    """With what a row shows, and no more."""
    return (
        query.select_related(
            "task",
            "harness",
            "stream",
            "run__model",
            "run__environment_version__environment",
            "run__rubric_version__rubric",
        )
        .only(*_READ)
        .annotate(
            short_answer=Substr("answer", 1, TEXT_CHARS),
            short_message=Substr("message", 1, TEXT_CHARS),
        )
    )


@dataclass(frozen=True)
class Bin:
    """Scored rollouts in [low, high); the last one holds what is above too."""

    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Amount:
    """What a set of rollouts amounts to."""

    n: int
    by_state: Mapping[str, int]
    bins: Sequence[Bin]
    mean: float | None
    passed: int
    tokens: int
    cost_usd: float

    @property
    def scored(self) -> int:
        return self.by_state.get(RolloutState.SCORED, 0)

    @property
    def errored(self) -> int:
        return self.by_state.get(RolloutState.ERRORED, 0)

    @property
    def not_applicable(self) -> int:
        return self.by_state.get(RolloutState.NOT_APPLICABLE, 0)

    @property
    def cancelled(self) -> int:
        return self.by_state.get(RolloutState.CANCELLED, 0)


def amount_of(query: QuerySet[Rollout]) -> Amount:
    """One query: counts by state and by tenth of the score, sums of score, tokens and cost.

    By run too, since that is how the index `rollout_amounts` lies.
    """
    edges = [(number + 1) / N_BINS for number in range(N_BINS - 1)]
    # Compared, not multiplied: a bin holds what its filter finds, to the last bit.
    below = {f"below_{i}": Count("pk", filter=Q(score__lt=edge)) for i, edge in enumerate(edges)}
    rows = (
        query.order_by()
        .values_list("run_id", "state")
        .annotate(
            n=Count("pk"),
            score_sum=Sum("score"),
            tokens=Sum(F("tokens_in") + F("tokens_out")),
            cost=Sum("cost_usd"),
            **below,
        )
    )
    by_state: dict[str, int] = {}
    counts = [0] * N_BINS
    total, tokens, cost = 0.0, 0, 0.0
    for _, state, n, score_sum, n_tokens, usd, *lower in rows:
        by_state[state] = by_state.get(state, 0) + n
        tokens += n_tokens or 0
        cost += usd or 0.0
        if state == RolloutState.SCORED:
            total += score_sum
            steps = zip([0, *lower], [*lower, n], strict=True)
            counts = [
                so_far + high - low for so_far, (low, high) in zip(counts, steps, strict=True)
            ]
    n_scored = sum(counts)
    return Amount(
        n=sum(by_state.values()),
        by_state=by_state,
        bins=[Bin(i / N_BINS, (i + 1) / N_BINS, n) for i, n in enumerate(counts)],
        mean=total / n_scored if n_scored else None,
        passed=sum(counts[N_BINS // 2 :]),
        tokens=tokens,
        cost_usd=cost,
    )


def with_verdicts(query: QuerySet[Rollout], criteria: Sequence[str]) -> QuerySet[Rollout]:
    """Each row with `verdict_state_0`, `verdict_value_0`, … of these criteria, in its own query."""
    told = {}
    for number, criterion in enumerate(criteria):
        rows = VerdictRecord.objects.filter(rollout=OuterRef("pk"), criterion=criterion)
        told[f"verdict_state_{number}"] = Subquery(rows.values("state")[:1])
        told[f"verdict_value_{number}"] = Subquery(rows.values("value")[:1])
    return query.annotate(**told) if told else query


def verdicts_by_rollout(rollout_ids: Iterable[int]) -> dict[int, dict[str, dict[str, Any]]]:
    """All verdicts, as exports carry them. One query."""
    found: dict[int, dict[str, dict[str, Any]]] = {}
    rows = VerdictRecord.objects.filter(rollout_id__in=list(rollout_ids)).order_by("pk")
    for each in rows.values("rollout_id", "criterion", "state", "value", "reason"):
        told = {name: each[name] for name in ("state", "value", "reason")}
        found.setdefault(each["rollout_id"], {})[each["criterion"]] = told
    return found


def runs_of(project_id: int, rollout_ids: Iterable[int]) -> dict[int, int]:
    """Runs by rollout, in the order of the rollouts' ids; strangers' are left out. One query."""
    found = Rollout.objects.filter(run__project_id=project_id, pk__in=list(rollout_ids))
    return dict(found.order_by("pk").values_list("pk", "run_id"))
