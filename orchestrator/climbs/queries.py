"""What pages, the API and the terminal read of climbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from optimizer.models import Edit
from orchestrator.climbs.models import Climb, ClimbRun, Rung
from orchestrator.events.models import Event


@dataclass(frozen=True)
class Decision:
    """One sentence on why the climb turned, as the log recorded it."""

    at: datetime
    text: str


@dataclass(frozen=True)
class LadderView:
    climb: Climb
    rungs: Sequence[Rung]
    decisions: Sequence[Decision]
    training: Sequence[dict[str, Any]]
    """Metrics of each training step, oldest first."""
    edits: Sequence[Edit]
    """Edits of the search with their estimated effect, strongest first."""
    runs: Sequence[ClimbRun]
    headline: str
    lede: str


def list_climbs(project_id: int) -> QuerySet[Climb]:
    return (
        Climb.objects.filter(project_id=project_id)
        .select_related("environment_version__environment", "rubric_version__rubric", "model")
        .prefetch_related("rungs")
    )


def climbs_in(project_id: int) -> QuerySet[Climb]:
    """With what works for them."""
    return list_climbs(project_id).select_related("project", "search", "training_job")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def headline(rungs: Sequence[Rung]) -> str:
    """States only what is certified on the sealed test."""
    base = next((rung for rung in rungs if rung.verdict == "reference"), None)
    if base is None or base.score is None:
        return "The climb has not measured its baseline yet"
    better = [rung for rung in rungs if rung.verdict == "better" and rung.score is not None]
    if better:
        return f"From {percent(base.score)} to {percent(better[-1].score)}, certified"
    if all(rung.state == "done" for rung in rungs):
        return f"Baseline {percent(base.score)}; no rung is certified better"
    return f"Baseline {percent(base.score)}; climbing"


def claim(climb: Climb, rungs: Sequence[Rung]) -> str:
    """The headline; a climb that ended early does not climb any more."""
    text = headline(rungs)
    if climb.has_ended and climb.state != "completed":
        ending = "stopped" if climb.state == "failed" else "cancelled"
        text = text.replace("; climbing", f"; {ending}").replace(
            "The climb has not measured its baseline yet",
            f"The climb was {ending} before its baseline was measured",
        )
    return text


def ladder(climb_id: int) -> LadderView:
    climb = Climb.objects.select_related(
        "environment_version__environment",
        "rubric_version__rubric",
        "model",
        "seed_harness",
        "stream",
        "search",
    ).get(pk=climb_id)
    rungs = list(climb.rungs.select_related("harness", "test_run", "comparison"))
    events = Event.objects.filter(
        stream_id=climb.stream_id, kind__in=["decision", "train.step"]
    ).order_by("seq")
    decisions = [Decision(e.at, e.payload["text"]) for e in events if e.kind == "decision"]
    steps = [e.payload for e in events if e.kind == "train.step"]
    edits: list[Edit] = []
    if climb.search is not None:
        edits = sorted(
            climb.search.edits.all(), key=lambda edit: -(edit.effect_mean or float("-inf"))
        )
    return LadderView(
        climb=climb,
        rungs=rungs,
        decisions=decisions,
        training=steps,
        edits=edits,
        runs=list(climb.climb_runs.select_related("run")),
        headline=claim(climb, rungs),
        lede=" ".join(rung.sentence for rung in rungs if rung.sentence),
    )


def rung_seconds(rung: Rung) -> float | None:
    """Wall time of a rung so far, in seconds."""
    if rung.started_at is None:
        return None
    return ((rung.ended_at or timezone.now()) - rung.started_at).total_seconds()
