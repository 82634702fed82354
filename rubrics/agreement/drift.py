"""Whether a judge agrees with people as it used to: over time, and from version to version. Pure.

Marks are put in windows of about equal numbers, since a calendar week has too few in one place and
too many in another. Whether the newest window differs from all before it is told by Fisher's exact
test on agreed and not agreed (Fisher, 1935): windows are small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rubrics.agreement.binary import Confusion, Rate
from rubrics.agreement.summary import kappa_of, total

WINDOW = 20
"""Marks; with fewer, kappa says next to nothing."""
ALPHA = 0.05


@dataclass(frozen=True)
class Mark:
    """A rollout that people marked and the judge decided, at a time and under a version."""

    at: datetime
    version: str
    person: bool
    judge: bool


@dataclass(frozen=True)
class Window:
    start: datetime
    end: datetime
    versions: tuple[str, ...]
    """In the order in which they appear."""
    confusion: Confusion
    kappa: float | None

    @property
    def n(self) -> int:
        return self.confusion.n

    @property
    def agreement(self) -> Rate:
        return self.confusion.agreement

    @property
    def person_rate(self) -> float:
        """Share that people passed."""
        return (self.confusion.true_positive + self.confusion.false_negative) / self.n

    @property
    def judge_rate(self) -> float:
        return (self.confusion.true_positive + self.confusion.false_positive) / self.n


@dataclass(frozen=True)
class Change:
    """The newest window against all before it."""

    before: Rate
    after: Rate
    p_value: float

    @property
    def is_certain(self) -> bool:
        return self.p_value < ALPHA

    @property
    def is_worse(self) -> bool:
        return (self.after.value or 0.0) < (self.before.value or 0.0)


def by_time(marks: Sequence[Mark], size: int = WINDOW) -> list[Window]:
    """Oldest first. A rest of less than half a window joins the one before it."""
    ordered = sorted(marks, key=lambda mark: mark.at)
    parts = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    if len(parts) > 1 and 2 * len(parts[-1]) < size:
        rest = parts.pop()
        parts[-1] = parts[-1] + rest
    return [_window(part) for part in parts]


def by_version(marks: Sequence[Mark]) -> list[Window]:
    """One window for each version, in the order of their first marks."""
    found: dict[str, list[Mark]] = {}
    for mark in sorted(marks, key=lambda mark: mark.at):
        found.setdefault(mark.version, []).append(mark)
    return [_window(part) for part in found.values()]


def newest_change(windows: Sequence[Window]) -> Change | None:
    """None while there is nothing to compare with."""
    if len(windows) < 2:
        return None
    before = total(window.confusion for window in windows[:-1])
    after = windows[-1].confusion
    p = fisher_exact(_agreed(before), _missed(before), _agreed(after), _missed(after))
    return Change(before.agreement, after.agreement, p)


def fisher_exact(a: int, b: int, c: int, d: int) -> float:
    """Two-sided p-value of the table ((a, b), (c, d)): all tables that are no likelier than it."""
    row, column, n = a + b, a + c, a + b + c + d
    ways = math.comb(n, column)
    if not ways or not n:
        return 1.0
    low, high = max(0, row + column - n), min(row, column)
    counts = [math.comb(row, k) * math.comb(n - row, column - k) for k in range(low, high + 1)]
    seen = counts[a - low]
    return min(1.0, sum(count for count in counts if count <= seen) / ways)


def _window(marks: Sequence[Mark]) -> Window:
    confusion = Confusion.of((mark.person, mark.judge) for mark in marks)
    versions = tuple(dict.fromkeys(mark.version for mark in marks))
    times = [mark.at for mark in marks]
    return Window(min(times), max(times), versions, confusion, kappa_of(confusion))


def _agreed(confusion: Confusion) -> int:
    return confusion.true_positive + confusion.true_negative


def _missed(confusion: Confusion) -> int:
    return confusion.n - _agreed(confusion)
