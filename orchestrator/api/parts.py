"""Shapes that several resources have in common."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from orchestrator.environments.models import EnvironmentVersion
from orchestrator.runs.queries import Tally, finite_or_none
from rubrics.models import RubricVersion


class EnvironmentRef(TypedDict):
    slug: str
    name: str
    version: Annotated[int, "Number of the version."]


class RubricRef(TypedDict):
    id: int
    name: str
    version: Annotated[int, "Number of the version."]


class ModelRef(TypedDict):
    id: int
    name: str


class HarnessRef(TypedDict):
    id: int
    sha256: str
    label: str


class TallyAnswer(TypedDict):
    """A mean never travels without its counts."""

    planned: int
    running: int
    scored: int
    errored: Annotated[int, "Has no score, and counts as no zero."]
    not_applicable: int
    cancelled: int
    mean: Annotated[float | None, "Of the scored ones; null when there are none."]
    passed: Annotated[int, "Scored at or above 0.5."]
    coverage: Annotated[float, "Share of the ended rollouts that could be scored, 0 to 1."]
    interval: Annotated[list[float] | None, "Of the pass rate, 95 %, Wilson."]
    tokens: int
    cost_usd: float


def environment_ref(version: EnvironmentVersion) -> EnvironmentRef:
    environment = version.environment
    return {"slug": environment.slug, "name": environment.name, "version": version.number}


def rubric_ref(version: RubricVersion) -> RubricRef:
    return {"id": version.rubric_id, "name": version.rubric.name, "version": version.number}


def model_ref(model: Any) -> ModelRef:
    return {"id": model.pk, "name": model.name}


def harness_ref(version: Any) -> HarnessRef:
    return {"id": version.pk, "sha256": version.sha256, "label": version.label}


def tally_answer(tally: Tally) -> TallyAnswer:
    return {
        "planned": tally.planned,
        "running": tally.running,
        "scored": tally.scored,
        "errored": tally.errored,
        "not_applicable": tally.not_applicable,
        "cancelled": tally.cancelled,
        "mean": finite_or_none(tally.mean),
        "passed": tally.passed,
        "coverage": tally.coverage,
        "interval": list(tally.interval) if tally.interval else None,
        "tokens": tally.tokens,
        "cost_usd": tally.cost_usd,
    }
