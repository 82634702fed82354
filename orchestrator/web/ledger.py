"""The token ledger: for each stored token its role, whether it trains, and with what weight. Pure.

Action tokens carry the sampler's log-probability and train by their rollout's advantage; tokens of
the environment's output train by ECHO's coefficient λ; all else is masked. With a checkpoint's
look (`training.lens`) each token also carries that model's surprise, -log p in nats; with two, how
much of it went.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.web.trace_tokens import TRAINED_KINDS, TokenRowLike, heat

OBSERVED = "env_output"
LEARNED_NATS = 0.5
"""An observation token became predictable where its surprise fell by more than this."""


@dataclass(frozen=True)
class Entry:
    """One token."""

    place: int
    id: int
    piece: str
    """Its text as far as it is known, control characters made visible."""
    kind: str
    is_trained: bool
    logprob: float | None
    """The sampler's."""
    weight: float | None
    """Advantage of an action token, λ of an observed one; None where unknown or masked."""
    surprise: float | None
    """Of the first checkpoint, nats."""
    surprise_after: float | None
    """Of the second."""
    heat: int

    @property
    def change(self) -> float | None:
        if self.surprise is None or self.surprise_after is None:
            return None
        return self.surprise_after - self.surprise

    @property
    def is_learned(self) -> bool:
        return self.kind == OBSERVED and self.change is not None and self.change < -LEARNED_NATS


LEAD_IN = 16
"""Tokens of the prompt that are shown before the first one that trains."""


def first_of_interest(entries: Sequence[Entry]) -> int:
    """Where a ledger opens: a little before its first trained token, past the rest of the prompt.

    At the start where that is near, or where nothing trains.
    """
    first = next((at for at, entry in enumerate(entries) if entry.is_trained), 0)
    return first - LEAD_IN if first > 4 * LEAD_IN else 0


@dataclass(frozen=True)
class Stretch:
    """Neighbouring tokens of one kind."""

    kind: str
    is_trained: bool
    entries: Sequence[Entry]

    @property
    def first(self) -> int:
        return self.entries[0].place

    @property
    def surprise(self) -> float | None:
        return mean([each.surprise for each in self.entries])

    @property
    def surprise_after(self) -> float | None:
        return mean([each.surprise_after for each in self.entries])

    @property
    def learned(self) -> int:
        return sum(each.is_learned for each in self.entries)


Looks = Mapping[int, Mapping[str, Any]]


def stretches(
    index: int,
    row: TokenRowLike,
    *,
    advantage: float | None = None,
    coefficient: float | None = None,
    before: Looks | None = None,
    after: Looks | None = None,
) -> list[Stretch]:
    """`before` and `after`: what two checkpoints said, by row index. A look of another length than
    the row's is not of these tokens and is left out."""
    old, new = _values(before, index, row), _values(after, index, row)
    pieces = _pieces(before, index, row) or _pieces(after, index, row)
    sampled = iter(row.logprobs)
    found: list[Stretch] = []
    place = 0
    for kind, count in row.kinds:
        weight = {"action": advantage, OBSERVED: coefficient}.get(kind)
        entries = []
        for at in range(place, place + count):
            logprob = next(sampled, None) if kind == "action" else None
            surprise = _surprise(old, at)
            surprise_after = _surprise(new, at)
            last = next((v for v in (surprise_after, surprise) if v is not None), None)
            warm = logprob if last is None else -last
            entries.append(
                Entry(
                    place=at,
                    id=row.ids[at],
                    piece=visible(pieces[at]) if pieces else "",
                    kind=kind,
                    is_trained=kind in TRAINED_KINDS,
                    logprob=logprob,
                    weight=weight,
                    surprise=surprise,
                    surprise_after=surprise_after,
                    heat=heat(warm),
                )
            )
        if entries:
            found.append(Stretch(kind, kind in TRAINED_KINDS, entries))
        place += count
    return found


@dataclass(frozen=True)
class Sum:
    """Of one kind over what is shown."""

    kind: str
    count: int
    before: float | None
    after: float | None
    learned: int

    @property
    def change(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before


def sums(parts: Sequence[Stretch]) -> list[Sum]:
    """By kind in the order of appearance; means over tokens that have a value."""
    by_kind: dict[str, list[Entry]] = {}
    for part in parts:
        by_kind.setdefault(part.kind, []).extend(part.entries)
    return [
        Sum(
            kind=kind,
            count=len(entries),
            before=mean([each.surprise for each in entries]),
            after=mean([each.surprise_after for each in entries]),
            learned=sum(each.is_learned for each in entries),
        )
        for kind, entries in by_kind.items()
    ]


def mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def visible(piece: str) -> str:
    """A token as one can see it: line ends and tabs as signs, other control characters by code."""
    signs = {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\t": "\N{RIGHTWARDS ARROW TO BAR}"}
    shown = [
        signs.get(each) or (each if each.isprintable() else f"\\u{ord(each):04x}") for each in piece
    ]
    return "".join(shown)


def _values(looks: Looks | None, index: int, row: TokenRowLike) -> Sequence[float | None] | None:
    values = (looks or {}).get(index, {}).get("logprobs")
    return values if values is not None and len(values) == len(row.ids) else None


def _pieces(looks: Looks | None, index: int, row: TokenRowLike) -> Sequence[str] | None:
    pieces = (looks or {}).get(index, {}).get("pieces")
    return pieces if pieces is not None and len(pieces) == len(row.ids) else None


def _surprise(values: Sequence[float | None] | None, place: int) -> float | None:
    value = None if values is None else values[place]
    return None if value is None or not math.isfinite(value) else max(0.0, -value)
