"""From a rollout's steps to its verdicts and score, by the run's rubric version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rubrics.aggregate import aggregate
from rubrics.grade import grade
from rubrics.types import RubricSpec, Score, Step, Transcript, Verdict


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
) -> Graded:
    """One verdict per criterion and the score they make; a criterion that fails is errored."""
    answers = [step.answer for step in steps if step.answer is not None]
    transcript = Transcript(
        steps=tuple(steps),
        answer=answers[-1] if answers else None,
        expected=expected,
        reward=reward,
        task=task,
        labels={"family": family},
        wall_s=wall_s,
        tokens=tokens,
    )
    verdicts = grade(spec, transcript)
    return Graded(score=aggregate(spec, verdicts), verdicts=verdicts)
