"""Spans of an observation that nobody can predict: times, process ids, hashes, addresses.

Their cross-entropy is irreducible, so at a fixed lambda they are most of the gradient and teach
nothing (ECHO reference, pitfall 7). Tokens that touch such a span leave the environment term and
stay in the length of the observation, as warnings do. The policy term is never touched.

Spans are looked for per observation in the text that its tokens spell; ids stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from training.errors import ConfigurationError
from training.types import Row, TokenKind

Pieces = Callable[[Sequence[int]], Sequence[str]]
"""Token ids to the text of each."""

BUILT_IN = {
    "timestamp": r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?",
    "clock": r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b",
    "date": (
        r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
        r" {1,2}\d{1,2}\b(?: \d\d:\d\d)?"
    ),
    "epoch": r"(?<![\d.])1[5-9]\d{8}(?:\d{3}|\.\d+)?(?![\d.])",
    "uuid": r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
    # A digit and a letter at least, so that neither a number nor a word of a to f counts.
    "hash": r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,128}\b",
    "address": r"\b0x[0-9a-fA-F]{4,16}\b",
    "process": r"\b(?i:pid|ppid|process|thread)(?: id)?[ =:]+\d+",
    "temporary": r"/tmp/[A-Za-z]*[._-]?[A-Za-z0-9_]{6,}",
    "duration": r"\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms|seconds?|s)\b",
}


def volatile_spans(text: str, extra: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Half-open character spans, merged and in order; `extra` are further regular expressions.

    Raises ConfigurationError for an expression that does not compile.
    """
    found = sorted(match.span() for pattern in _compiled(extra) for match in pattern.finditer(text))
    merged: list[tuple[int, int]] = []
    for start, stop in found:
        if start == stop:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def mark_volatile(rows: Sequence[Row], pieces: Pieces, extra: Sequence[str] = ()) -> list[Row]:
    """Rows whose `untrained` names the environment tokens that touch a volatile span as well."""
    return [_marked(row, pieces, extra) for row in rows]


def _marked(row: Row, pieces: Pieces, extra: Sequence[str]) -> Row:
    untrained = set(row.untrained)
    for start, stop in _observations(row.kinds):
        texts = pieces(row.ids[start:stop])
        spans = volatile_spans("".join(texts), extra)
        position = 0
        for index, text in enumerate(texts, start=start):
            end = position + len(text)
            if any(position < b and end > a for a, b in spans):
                untrained.add(index)
            position = end
    return replace(row, untrained=tuple(sorted(untrained)))


def _observations(kinds: Sequence[TokenKind]) -> Iterator[tuple[int, int]]:
    """Runs of environment output."""
    start = None
    for index, kind in enumerate([*kinds, TokenKind.PAD]):
        is_output = kind is TokenKind.ENV_OUTPUT
        if is_output and start is None:
            start = index
        elif not is_output and start is not None:
            yield start, index
            start = None


def _compiled(extra: Sequence[str]) -> list[re.Pattern[str]]:
    patterns = list(BUILT_IN.values())
    for expression in extra:
        try:
            re.compile(expression)
        except re.error as error:
            raise ConfigurationError(f"volatile_patterns: {expression!r}: {error}") from error
        patterns.append(expression)
    return [re.compile(pattern) for pattern in patterns]
