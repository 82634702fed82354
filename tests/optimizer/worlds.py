"""Worlds in which the truth is known, to see what a search makes of them."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.edits import Edit
from optimizer.tasks import TaskRef
from tests.optimizer.build import say

FAMILIES = ("lines", "first", "lookup", "sums", "errors")


@dataclass(frozen=True)
class TerminalWorld:
    """Like the terminal tasks and a small model:

    demonstrations do everything, rules on top hurt.
    """

    by_number: tuple[float, ...] = (0.02, 0.5, 0.65, 0.75, 0.75)
    """Pass rate by number of demonstrations."""
    rules_factor: float = 0.55
    spread: float = 0.15
    """Families differ by up to so much in either direction."""

    def rate(self, edits: tuple[Edit, ...], family: str) -> float:
        n = sum(edit.is_demonstration for edit in edits)
        rate = self.by_number[min(n, len(self.by_number) - 1)]
        rate *= self.rules_factor if any(edit.group == "style" for edit in edits) else 1.0
        shift = self.spread * (FAMILIES.index(family) / 2 - 1) if rate > self.spread else 0.0
        return min(1.0, max(0.0, rate + shift))


@dataclass(frozen=True)
class NullWorld:
    """Nothing matters."""

    level: float = 0.4

    def rate(self, edits: tuple[Edit, ...], family: str) -> float:
        return self.level


@dataclass(frozen=True)
class AdditiveWorld:
    """Independent edits whose text begins with what they do: good, bad or nothing."""

    def rate(self, edits: tuple[Edit, ...], family: str) -> float:
        steps = {"good": 0.1, "bad": -0.1, "nothing": 0.0}
        rate = 0.4 + sum(steps[edit.content.split()[0]] for edit in edits)
        return min(1.0, max(0.0, rate))


def additive_edits(each: int = 4) -> tuple[Edit, ...]:
    return tuple(say(f"{kind} {i}") for kind in ("good", "bad", "nothing") for i in range(each))


def tasks(split: str, n: int) -> tuple[TaskRef, ...]:
    return tuple(TaskRef(f"{split}-{i:04d}", FAMILIES[i % len(FAMILIES)]) for i in range(1, n + 1))
