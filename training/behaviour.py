"""How the policy behaves, from its tokens alone: length, repetition, roles it speaks for, surprise.

Numbers that tell a collapse which the reward does not show: a model that repeats itself, that goes
on with the transcript and invents what the environment says (seen at high lambda), or that has
become certain of everything. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from training.types import Row, RowStatus, TokenKind

REPEATED_OF = 4
"""Length of the pieces that are looked for again: shorter ones repeat in any text."""

Metrics = dict[str, float | int | bool | str | None]


def behaviour_metrics(
    rows: Sequence[Row], *, has_role_marker: Callable[[Sequence[int]], bool] | None = None
) -> Metrics:
    """Over the rollouts of a step; `has_role_marker` looks at the tokens of one action."""
    counted = [row for row in rows if row.status not in (RowStatus.PAD, RowStatus.INFRASTRUCTURE)]
    actions = [spans for row in counted if (spans := action_spans(row))]
    lengths = [sum(len(span) for span in spans) for spans in actions]
    shares = [repeated_share([t for span in spans for t in span]) for spans in actions]
    logprobs = [value for row in counted for value in _sampled(row)]
    marked = None
    if has_role_marker is not None and actions:
        marked = sum(any(map(has_role_marker, spans)) for spans in actions) / len(actions)
    return {
        "action_tokens_mean": _mean(lengths),
        "action_repeated_share": _mean(shares),
        "role_marker_share": marked,
        "entropy_sampled": None if not logprobs else -math.fsum(logprobs) / len(logprobs),
    }


def action_spans(row: Row) -> list[tuple[int, ...]]:
    """The stretches of tokens that the policy wrote, in order."""
    spans: list[tuple[int, ...]] = []
    start: int | None = None
    for position, kind in enumerate((*row.kinds, TokenKind.PAD)):
        if kind is TokenKind.ACTION and start is None:
            start = position
        elif kind is not TokenKind.ACTION and start is not None:
            spans.append(row.ids[start:position])
            start = None
    return spans


def repeated_share(ids: Sequence[int]) -> float:
    """Share of the pieces of four tokens that stood there before; 0 for a shorter text."""
    pieces = [tuple(ids[i : i + REPEATED_OF]) for i in range(len(ids) - REPEATED_OF + 1)]
    return 1.0 - len(set(pieces)) / len(pieces) if pieces else 0.0


def _sampled(row: Row) -> list[float]:
    """The sampler's log-probabilities of action tokens: minus their mean estimates the entropy."""
    if row.logprobs is None:
        return []
    return [
        value
        for value, kind in zip(row.logprobs, row.kinds, strict=True)
        if kind is TokenKind.ACTION and math.isfinite(value)
    ]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
