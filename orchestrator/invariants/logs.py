"""The log: sequences without a gap, and no older attempt after a newer one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.invariants.finding import Finding, Findings


class StreamRow(NamedTuple):
    id: int
    kind: str
    last_seq: int
    n: int
    """Of its events."""
    low: int | None
    high: int | None
    """Smallest and largest sequence of its events; null without events."""


class AttemptRow(NamedTuple):
    stream_id: int
    seq: int
    kind: str
    attempt: int
    """Of the job that wrote it."""


def check_whole(rows: Iterable[StreamRow]) -> Findings:
    """Every log is 1..n, and n is what its stream says.

    A sequence exists once per stream by a constraint, so counts and ends tell of every gap.
    """
    for row in rows:
        if (row.n, row.low or 0, row.high or 0) == (row.last_seq, min(1, row.n), row.n):
            continue
        yield Finding(
            "log.whole",
            f"{row.kind} stream {row.id}",
            f"its counter is at {row.last_seq}, but it has {row.n} events"
            f" from {row.low} to {row.high}",
        )


def check_attempts(rows: Iterable[AttemptRow]) -> Findings:
    """In a stream no event of an older attempt follows one of a newer. Rows by stream and seq."""
    stream_id, newest = 0, 0
    for row in rows:
        if row.stream_id != stream_id:
            stream_id, newest = row.stream_id, 0
        if row.attempt < newest:
            yield Finding(
                "log.attempts",
                f"stream {row.stream_id} #{row.seq}",
                f"{row.kind} of attempt {row.attempt} after one of attempt {newest}",
            )
        newest = max(newest, row.attempt)
