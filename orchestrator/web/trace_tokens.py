"""The tokens of a rollout as runs of equal kind, with what the sampler said of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

TRAINED_KINDS = frozenset({"action", "env_output"})


@dataclass(frozen=True)
class TokenCell:
    """One token of the ledger: its place, id, kind and, where sampled, its log-probability."""

    place: int
    id: int
    kind: str
    logprob: float | None
    heat: int
    """0 (expected) to 5 (surprising); 0 where no log-probability exists."""


@dataclass(frozen=True)
class TokenSpan:
    kind: str
    count: int
    is_trained: bool
    cells: Sequence[TokenCell]
    """Empty for kinds that carry no log-probability."""
    mean_logprob: float | None


class TokenRowLike(Protocol):
    ids: Any
    kinds: Any
    logprobs: Any


def token_spans(row: TokenRowLike) -> list[TokenSpan]:
    """Runs of equal kind in order, with the sampler's log-probabilities of the action tokens."""
    spans: list[TokenSpan] = []
    logprobs = iter(row.logprobs)
    place = 0
    for kind, size in row.kinds:
        cells: list[TokenCell] = []
        if kind == "action":
            for offset in range(size):
                logprob = next(logprobs, None)
                cells.append(
                    TokenCell(place + offset, row.ids[place + offset], kind, logprob, heat(logprob))
                )
        known = [c.logprob for c in cells if c.logprob is not None]
        spans.append(
            TokenSpan(
                kind=kind,
                count=size,
                is_trained=kind in TRAINED_KINDS,
                cells=cells,
                mean_logprob=sum(known) / len(known) if known else None,
            )
        )
        place += size
    return spans


def heat(logprob: float | None) -> int:
    """Surprise in six steps: below 0.1, 0.5, 1, 2, 4 nats, and above."""
    if logprob is None:
        return 0
    return sum(-logprob >= bound for bound in (0.1, 0.5, 1.0, 2.0, 4.0))
