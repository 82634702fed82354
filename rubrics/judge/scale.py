"""What a judge is asked for, and what its reply was read as."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rubrics.types import State


@dataclass(frozen=True)
class Scale:
    """The values that one criterion may be given."""

    kind: Literal["binary", "scale"] = "binary"
    """`binary`: 0 and 1 and nothing between."""
    min: float = 0.0
    max: float = 1.0
    allows_na: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min) and math.isfinite(self.max) and self.min < self.max):
            raise ValueError("a scale needs two finite ends, the lower one first")
        if self.kind == "binary" and (self.min, self.max) != (0, 1):
            raise ValueError("a binary criterion has 0 and 1 only")

    def share(self, value: float) -> float:
        """`value` between `min` and `max` as 0 to 1."""
        return (value - self.min) / (self.max - self.min)


class Problem(StrEnum):
    """Why a reply gives no verdict."""

    EMPTY = "empty"
    TRUNCATED = "truncated"
    """It stops inside the verdict or the reasoning."""
    MALFORMED = "malformed"
    """There is a verdict in it that cannot be read."""
    NO_VERDICT = "no_verdict"
    AMBIGUOUS = "ambiguous"
    """It says two things, or what it says may be a quotation."""
    WRONG_COUNT = "wrong_count"
    """Several verdicts, or none, where one was asked for."""
    WRONG_TYPE = "wrong_type"
    NUMBER_FORMAT = "number_format"
    SCALE_MISMATCH = "scale_mismatch"
    """A number on another scale than the declared one."""
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    NA_NOT_ALLOWED = "na_not_allowed"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Problem.EMPTY: "the reply was empty",
    Problem.TRUNCATED: "the reply stops before its verdict ends",
    Problem.MALFORMED: "the verdict is not valid JSON",
    Problem.NO_VERDICT: "the reply contains no verdict",
    Problem.AMBIGUOUS: "the reply contains more than one verdict, or one that may be a quotation",
    Problem.WRONG_COUNT: "exactly one verdict was asked for",
    Problem.WRONG_TYPE: "the score is not a number of the scale",
    Problem.NUMBER_FORMAT: "the score is not a plain decimal number",
    Problem.SCALE_MISMATCH: "the score is on another scale than the one that was asked for",
    Problem.NOT_FINITE: "the score is not a finite number",
    Problem.OUT_OF_RANGE: "the score is outside the scale",
    Problem.NA_NOT_ALLOWED: "the criterion cannot be answered with not applicable",
}


@dataclass(frozen=True)
class Reading:
    """One verdict, or why there is none. The value is 0 to 1."""

    state: State
    value: float | None = None
    problem: Problem | None = None

    @classmethod
    def errored(cls, problem: Problem) -> Reading:
        return cls(State.ERRORED, problem=problem)


NOT_APPLICABLE = Reading(State.NOT_APPLICABLE)
