"""From a rollout's steps to its verdicts and score, by the run's rubric version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.runs.transcripts import assembled
from rubrics.aggregate import aggregate
from rubrics.grade import grade
from rubrics.types import RubricSpec, Score, Step, Verdict


@dataclass(frozen=True)
class Graded:
    score: Score
    verdicts: Sequence[Verdict]


def grade_rollout(
    *,
    spec: RubricSpec,
    steps: Sequence[Step],
    reward: float | None,
    task: str,
    family: str,
    wall_s: float,
    tokens: int,
    expected: str | None = None,
    cost_usd: float | None = None,
) -> Graded:
    """One verdict per criterion and the score they make; a criterion that fails is errored."""
    transcript = assembled(
        steps=steps,
        reward=reward,
        task=task,
        family=family,
        expected=expected,
        wall_s=wall_s,
        tokens=tokens,
        cost_usd=cost_usd,
    )
    verdicts = grade(spec, transcript)
    return Graded(score=aggregate(spec, verdicts), verdicts=verdicts)
