"""Criteria, rubrics and transcripts with defaults that a test overrides by keyword."""

from __future__ import annotations

from typing import Any

from rubrics.types import Criterion, RubricSpec, Step, Transcript


def criterion(kind: str = "environment_reward", id: str = "c", **changes: Any) -> Criterion:
    return Criterion(id=id, kind=kind, **changes)


def rubric(*criteria: Criterion, **changes: Any) -> RubricSpec:
    return RubricSpec(criteria=criteria, **changes)


def step(index: int = 0, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "seq": 10 + index,
        "action": "ls",
        "command": "ls",
        "output": "a.txt",
    } | changes
    return Step(index=index, **values)


def transcript(**changes: Any) -> Transcript:
    """Two steps: a command, then the answer 42, which is the expected one and was rewarded with
    1.
    """
    steps = (
        step(0),
        step(1, action="answer: 42", command=None, answer="42", output="", reward=1.0, done=True),
    )
    values: dict[str, Any] = {"steps": steps, "answer": "42", "expected": "42", "reward": 1.0}
    return Transcript(**(values | changes))
