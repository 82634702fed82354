"""Whether a job that failed is tried again. Pure.

At most three attempts without a finished step between them. The same failure twice in a row ends
the job at once: what fails twice the same way fails a third time, and only costs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_ATTEMPTS = 3

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?([eE][-+]?\d+)?")
_FINAL = ("ConfigurationError", "RowError", "NumericalError", "MismatchError")
"""Kinds that no second attempt can change: their cause is in the manifest, the rows or the weights.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt ended."""

    step: int
    """The step under way."""
    kind: str
    """An exception's name, `hung`, or `killed by SIGKILL` and the like."""
    reason: str

    @property
    def signature(self) -> str:
        """The same for the same failure: numbers, such as sizes and seconds, do not count."""
        return f"{self.kind}@{self.step}: {_NUMBERS.sub('#', self.reason)[:200]}"


def verdict(failures: Sequence[Failure]) -> str:
    """Why there is no further attempt, or empty; failures since the last finished step."""
    if not failures:
        return ""
    last = failures[-1]
    if last.kind in _FINAL:
        return last.reason
    if len(failures) >= 2 and failures[-2].signature == last.signature:
        return f"The same failure twice in step {last.step}: {last.reason}"
    if len(failures) >= MAX_ATTEMPTS:
        return f"{len(failures)} attempts without a finished step. Last: {last.reason}"
    return ""
