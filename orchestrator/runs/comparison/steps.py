"""Two traces aligned by what the agent did. Pure.

A move is an action and what it brought. Moves with the same call are anchors; between two anchors
moves are paired in order as long as both sides have one, those of the same tool first. The first
divergence is the first row that is not alike on both sides: by its call, or by what it brought.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

LONG = 1_500
"""From so many moves on, frequent calls are no anchors: exact alignment takes time with the
square of the length."""


@dataclass(frozen=True, slots=True)
class Move:
    """One action and its observation, or an event that is neither."""

    seq: int
    label: str
    """Step number or kind of event."""
    tool: str
    """Name of the tool, form of the action, or kind of the event."""
    call: str
    """What was sent."""
    result: str
    """What it brought."""
    result_seq: int | None = None
    reward: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.tool, " ".join(self.call.split()))


class RowKind(StrEnum):
    SAME = "same"
    RESULT = "result"
    """The same call brought something else."""
    CALL = "call"
    """Another call at the same place."""
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Row:
    kind: RowKind
    left: Move | None
    right: Move | None


def aligned(left: Sequence[Move], right: Sequence[Move]) -> list[Row]:
    """Each move of both sides once, in its order."""
    start = _common(left, right)
    end = _common(left[start:][::-1], right[start:][::-1])
    rows = [_paired(one, two) for one, two in zip(left[:start], right[:start], strict=True)]
    rows += _middle(left[start : len(left) - end], right[start : len(right) - end])
    tail = zip(left[len(left) - end :], right[len(right) - end :], strict=True)
    return [*rows, *(_paired(one, two) for one, two in tail)]


def first_divergence(rows: Sequence[Row]) -> int | None:
    """Index of the first row that is not the same; None for traces that are alike."""
    return next((i for i, row in enumerate(rows) if row.kind != RowKind.SAME), None)


def _common(left: Sequence[Move], right: Sequence[Move]) -> int:
    n = 0
    for one, two in zip(left, right, strict=False):
        if one.key != two.key:
            break
        n += 1
    return n


def _middle(left: Sequence[Move], right: Sequence[Move]) -> Iterator[Row]:
    matcher = difflib.SequenceMatcher(
        None,
        [move.key for move in left],
        [move.key for move in right],
        autojunk=max(len(left), len(right)) > LONG,
    )
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            for offset in range(j - i):
                yield _paired(left[i + offset], right[k + offset])
        else:
            yield from _between(left[i:j], right[k:m])


def _between(left: Sequence[Move], right: Sequence[Move]) -> Iterator[Row]:
    """Neither side holds a call of the other here: the same tool is the next best sign."""
    tools = difflib.SequenceMatcher(
        None,
        [move.tool for move in left],
        [move.tool for move in right],
        autojunk=max(len(left), len(right)) > LONG,
    )
    for _tag, i, j, k, m in tools.get_opcodes():
        n = min(j - i, m - k)
        for offset in range(n):
            yield _paired(left[i + offset], right[k + offset])
        for move in left[i + n : j]:
            yield Row(RowKind.LEFT, move, None)
        for move in right[k + n : m]:
            yield Row(RowKind.RIGHT, None, move)


def _paired(one: Move, two: Move) -> Row:
    if one.key != two.key:
        return Row(RowKind.CALL, one, two)
    return Row(RowKind.SAME if one.result == two.result else RowKind.RESULT, one, two)


@dataclass(frozen=True)
class Stretch:
    """Rows that are shown, or equal ones that are folded."""

    rows: Sequence[tuple[int, Row]]
    """With their index."""
    is_folded: bool = False


def stretches(rows: Sequence[Row], *, context: int = 1) -> list[Stretch]:
    """Equal rows away from any difference are folded, if there are at least three of them."""
    near = {
        at + offset
        for at, row in enumerate(rows)
        if row.kind != RowKind.SAME
        for offset in range(-context, context + 1)
    }
    found: list[Stretch] = []
    held: list[tuple[int, Row]] = []
    is_far = False
    for at, row in enumerate(rows):
        if held and (at not in near) != is_far:
            found.append(Stretch(tuple(held), is_far and len(held) > 2))
            held = []
        is_far = at not in near
        held.append((at, row))
    if held:
        found.append(Stretch(tuple(held), is_far and len(held) > 2))
    return found
