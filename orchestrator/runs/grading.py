"""From a rollout's steps to its verdicts and score, by the run's rubric version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.runs.models import RolloutState
from orchestrator.runs.transcripts import assembled
from rubrics.aggregate import aggregate
from rubrics.grade import grade, grade_async
from rubrics.grade_group import held
from rubrics.kinds import KINDS
from rubrics.types import RubricSpec, Scope, Score, Services, State, Step, Verdict


@dataclass(frozen=True)
class Graded:
    score: Score
    verdicts: Sequence[Verdict]


def needs_services(spec: RubricSpec) -> bool:
    """Whether a criterion asks a judge or runs an author's code."""
    return any(KINDS[criterion.kind].decide is None for criterion in spec.criteria)


def reads_state(spec: RubricSpec) -> bool:
    """Whether a criterion looks at what the environment reports of its end."""
    return any(
        criterion.scope is Scope.ENVIRONMENT_STATE or criterion.kind == "python"
        for criterion in spec.criteria
    )


async def grade_rollout(
    *,
    spec: RubricSpec,
    services: Services | None,
    steps: Sequence[Step],
    reward: float | None,
    task: str,
    family: str,
    wall_s: float,
    tokens: int,
    expected: str | None = None,
    cost_usd: float | None = None,
    final: Mapping[str, Any] | None = None,
) -> Graded:
    """One verdict per criterion and the score they make; a criterion that fails is errored, one
    that compares rollouts is pending (`orchestrator.runs.groups` decides it).

    `services`: needed where `needs_services` says so.
    """
    transcript = assembled(
        steps=steps,
        reward=reward,
        task=task,
        family=family,
        expected=expected,
        wall_s=wall_s,
        tokens=tokens,
        cost_usd=cost_usd,
        final=final,
    )
    if services is None:
        verdicts = grade(spec, transcript)
    else:
        known = held(spec, transcript)
        verdicts = await grade_async(spec, transcript, services=services, known=known)
    return Graded(score=aggregate(spec, verdicts), verdicts=verdicts)


def state_of(score: Score) -> RolloutState:
    """Of a rollout whose episode has ended with this score."""
    if score.state is State.PENDING:
        return RolloutState.JUDGING
    return RolloutState(score.state.value)


def cause_of(score: Score) -> str:
    has_one = score.value is None and score.state is not State.PENDING
    return "grading" if has_one else ""
