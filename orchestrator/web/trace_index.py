"""The skeleton of a trace: what each event is and how large, in two letters per event. Pure.

A page of 32,843 events gets this with its first answer (66 kB), lays out every card by an estimate
and asks for the cards that come into view.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

LETTERS = string.ascii_letters + string.digits
OTHER = "other"
RESTART = "rollout.restarted"
MOST_RANGES = 400
MOST_EVENTS = 200


class IndexRow(NamedTuple):
    seq: int
    kind: str
    size: int
    """Characters of the stored payload."""
    depth: int = 0


class TraceIndex:
    """Rows in the order in which they are shown."""

    def __init__(self, rows: Sequence[IndexRow]) -> None:
        self.rows = rows
        counts = Counter(row.kind for row in rows)
        self.counts = dict(counts)
        names = list(counts)
        self.kinds = names if len(names) < len(LETTERS) else [*names[: len(LETTERS) - 1], OTHER]
        self._letters = {name: LETTERS[i] for i, name in enumerate(self.kinds)}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last_seq(self) -> int:
        return max((row.seq for row in self.rows), default=0)

    @property
    def first_of_last_attempt(self) -> int:
        """Position of the first event of the attempt that counts."""
        for position in range(len(self.rows) - 1, -1, -1):
            if self.rows[position].kind == RESTART:
                return position
        return 0

    def position(self, seq: int) -> int | None:
        """Where an event stands; quick for a log that is shown as it was written."""
        if 0 < seq <= len(self.rows) and self.rows[seq - 1].seq == seq:
            return seq - 1
        return next((i for i, row in enumerate(self.rows) if row.seq == seq), None)

    def as_json(self) -> dict[str, Any]:
        in_order = all(row.seq == i for i, row in enumerate(self.rows, start=1))
        other = self._letters.get(OTHER, "")
        has_depth = any(row.depth for row in self.rows)
        return {
            "kinds": self.kinds,
            "codes": "".join(self._letters.get(row.kind, other) for row in self.rows),
            "sizes": "".join(size_letter(row.size) for row in self.rows),
            "seqs": None if in_order else [row.seq for row in self.rows],
            "depths": "".join(LETTERS[min(row.depth, 61)] for row in self.rows)
            if has_depth
            else "",
        }


def depths_of(parents: Mapping[str, str]) -> dict[str, int]:
    """How many known parents stand above each key; 0 for all whose parents go round in a loop."""
    depths: dict[str, int] = {}
    for key in parents:
        path: list[str] = []
        on_path: set[str] = set()
        above = key
        while above in parents and above not in depths and above not in on_path:
            path.append(above)
            on_path.add(above)
            above = parents[above]
        if above in on_path:
            depths.update(dict.fromkeys(path, 0))
            continue
        depth = depths.get(above, -1)
        for below in reversed(path):
            depth += 1
            depths[below] = depth
    return depths


@cache
def size_letter(size: int) -> str:
    """Four letters per doubling, from 64 characters on."""
    return LETTERS[min(len(LETTERS) - 1, round(4 * math.log2(1 + size / 64)))]


def read_seqs(text: str) -> list[int]:
    """`7,9-12` as numbers, at most MOST_EVENTS; what is no number or range is passed over."""
    seqs: list[int] = []
    for part in text.split(",")[:MOST_RANGES]:
        match = re.fullmatch(r"(\d{1,15})(?:-(\d{1,15}))?", part, re.ASCII)
        if match is None:
            continue
        first = int(match[1])
        last = int(match[2] or match[1])
        seqs.extend(range(first, min(last, first + MOST_EVENTS) + 1))
    return list(dict.fromkeys(seqs))[:MOST_EVENTS]
