"""What only the pages of searches read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Prefetch, Q, QuerySet

from optimizer.models import (
    Budget,
    Candidate,
    Comparison,
    Edit,
    Nudge,
    Proposal,
    Release,
    Search,
    SearchRun,
    Tombstone,
)
from orchestrator.climbs.models import Climb
from orchestrator.climbs.queries import Decision
from orchestrator.environments.models import Task
from orchestrator.events.models import Event
from orchestrator.runs.models import Rollout, Run

SHOWN = 50
"""Searches on the list at once."""


@dataclass(frozen=True)
class SearchView:
    search: Search
    edits: Sequence[Edit]
    candidates: Sequence[Candidate]
    tombstones: Sequence[Tombstone]
    proposals: Sequence[Proposal]
    nudges: Sequence[Nudge]
    comparisons: Sequence[Comparison]
    releases: Sequence[Release]
    budgets: Sequence[Budget]
    runs: Sequence[SearchRun]
    decisions: Sequence[Decision]


def list_searches(project_id: int, limit: int = SHOWN) -> Sequence[Search]:
    """Newest first, three queries; those that climbs asked for too."""
    return list(
        _with_names(Search.objects.filter(project_id=project_id))
        .exclude(stream=None)
        .annotate(n_waiting=Count("proposals", filter=Q(proposals__state="waiting")))
        .prefetch_related(Prefetch("comparisons", Comparison.objects.order_by("pk")))
        .order_by("-pk")[:limit]
    )


def climb_of(search: Search) -> Climb | None:
    """That the search is a rung of; None for one that stands alone. No query after `list_searches`
    and `search_view`.
    """
    rung = getattr(search, "rung", None)
    return rung.climb if rung is not None else getattr(search, "climb", None)


def budgets_by_search(search_ids: Sequence[int]) -> Mapping[int, Sequence[Budget]]:
    """Rollouts of the agent only; what the list shows."""
    scopes = {f"search:{pk}": pk for pk in search_ids}
    found: dict[int, list[Budget]] = {}
    for budget in Budget.objects.filter(scope__in=scopes, role="agent", unit="rollouts"):
        found.setdefault(scopes[budget.scope], []).append(budget)
    return found


def search_view(search_id: int) -> SearchView:
    search = _with_names(Search.objects.all()).get(pk=search_id)
    events: list[Event] = []
    if search.stream_id is not None:
        events = list(
            Event.objects.filter(stream_id=search.stream_id, kind="decision").order_by("seq")
        )
    return SearchView(
        search=search,
        edits=list(search.edits.select_related("proposal")),
        candidates=list(search.candidates.select_related("harness").order_by("pk")),
        tombstones=list(search.tombstones.order_by("-pk")),
        proposals=list(search.proposals.defer("prompt", "answers").order_by("-round", "-pk")),
        nudges=list(search.nudges.select_related("created_by", "proposal").order_by("-pk")),
        comparisons=list(search.comparisons.order_by("pk")),
        releases=list(
            search.releases.select_related("harness", "approved_by", "rolled_back_by", "previous")
        ),
        budgets=budgets_of(search_id),
        runs=list(search.search_runs.select_related("run").order_by("-pk")),
        decisions=[Decision(event.at, event.payload["text"]) for event in events],
    )


def release_of(search: Search) -> Release | None:
    """The newest that was not rolled back."""
    return search.releases.filter(rolled_back_at=None).select_related("environment").first()


def proposal_of(search: Search, proposal_id: int) -> Proposal | None:
    return (
        search.proposals.select_related("created_by")
        .prefetch_related("nudges__created_by", "edit_rows")
        .filter(pk=proposal_id)
        .first()
    )


@dataclass(frozen=True)
class CertificateView:
    search: Search
    comparison: Comparison
    candidate: Candidate | None
    """What the certificate speaks of; None where it is not stored any more."""
    edits: Sequence[Edit]
    tasks: Sequence[str]
    """Keys of the split's tasks."""
    budgets: Sequence[Budget]


def certificate_view(search_id: int, comparison_id: int) -> CertificateView | None:
    search = _with_names(Search.objects.all()).get(pk=search_id)
    comparison = search.comparisons.filter(pk=comparison_id).first()
    if comparison is None:
        return None
    candidate = _candidate_of(search, comparison)
    hashes = candidate.edits if candidate else comparison.details.get("edits", ())
    stored = {edit.sha256: edit for edit in search.edits.filter(sha256__in=hashes)}
    return CertificateView(
        search=search,
        comparison=comparison,
        candidate=candidate,
        edits=[stored[sha] for sha in hashes if sha in stored],
        tasks=keys_of_split(search.environment_version_id, comparison.split),
        budgets=budgets_of(search.pk),
    )


def _candidate_of(search: Search, comparison: Comparison) -> Candidate | None:
    """By the harness that was compared; with several sets of edits that make it, the first."""
    wanted = comparison.details.get("harness", "")
    rows = search.candidates.select_related("harness").filter(harness__sha256=wanted)
    return rows.order_by("pk").first()


def budgets_of(search_id: int) -> list[Budget]:
    scope = f"search:{search_id}"
    return list(Budget.objects.filter(Q(scope=scope) | Q(scope__startswith=f"{scope}/")))


def keys_of_split(version_id: int | None, split: str) -> list[str]:
    tasks = Task.objects.filter(version_id=version_id, split=split)
    return list(tasks.order_by("key").values_list("key", flat=True))


@dataclass(frozen=True)
class Past:
    """One finished rollout of the same kind, for a forecast."""

    score: float | None
    tokens: int
    usd: float
    seconds: float | None


PAST_ROLLOUTS = 200


def past_rollouts(version_id: int, rubric_id: int, model_id: int) -> list[Past]:
    """The newest on open tasks; what the sealed test gave is not looked at."""
    rows = (
        Rollout.objects.filter(
            run__environment_version=version_id,
            run__rubric_version=rubric_id,
            run__model=model_id,
            ended_at__isnull=False,
            state__in=("scored", "errored"),
        )
        .exclude(task__split="test")
        .order_by("-pk")
        .values_list("score", "tokens_in", "tokens_out", "cost_usd", "latency_s")[:PAST_ROLLOUTS]
    )
    return [
        Past(score, (given or 0) + (taken or 0), usd or 0.0, seconds)
        for score, given, taken, usd, seconds in rows
    ]


def newest_environment(project_id: int) -> str:
    """Slug of that of the newest run; empty without one."""
    slugs = Run.objects.filter(project_id=project_id).order_by("-pk")
    return slugs.values_list("environment_version__environment__slug", flat=True).first() or ""


def task_counts(version_id: int) -> dict[str, int]:
    """By split."""
    rows = Task.objects.filter(version_id=version_id).order_by().values_list("split")
    return dict(rows.annotate(n=Count("pk")))


def _with_names(searches: QuerySet[Search, Any]) -> QuerySet[Search, Any]:
    return searches.select_related(
        "project",
        "stream",
        "environment_version__environment",
        "rubric_version__rubric",
        "model",
        "seed_harness",
        "created_by",
        "climb",
        "rung__climb",
    )
