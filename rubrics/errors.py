"""The exceptions of rubrics.

An expected outcome (errored, not applicable) is a `Verdict`, not an exception.
"""

from __future__ import annotations


class RubricError(Exception):
    """Base of everything that rubrics raise."""


class RubricInvalid(RubricError, ValueError):
    """A rubric cannot be used as written; each argument names one field and what it accepts."""

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(str(problem) for problem in self.args)

    def __str__(self) -> str:
        return "; ".join(self.problems)


class VerdictInvalid(RubricError, ValueError):
    """A verdict or score that must not exist:

    a number without the state for it, NaN, a value outside 0 to 1.
    """


class CriterionFailed(RubricError, RuntimeError):
    """A criterion could not be decided, for a reason worth reading;

    the boundary makes it an errored verdict.
    """
