"""The skeleton of a trace: what each event is and how large, in two letters per event. Pure.

A page of 32,843 events gets this with its first answer (66 kB), lays out every card by an estimate
and asks for the cards that come into view.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
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
    """Characters of the stored payload, about."""
    depth: int = 0


class TraceIndex:
    """Events in the order in which they are shown, by column: that many rows would cost more to
    make than all the rest of the page.
    """

    def __init__(
        self,
        seqs: Sequence[int],
        kinds_of: Sequence[str],
        sizes: Sequence[int],
        depths: Sequence[int] = (),
    ) -> None:
        """`depths`: none where all are 0."""
        self.seqs = list(seqs)
        self._kinds_of, self._sizes, self._depths = kinds_of, sizes, depths
        counts = Counter(kinds_of)
        self.counts = dict(counts)
        names = list(counts)
        self.kinds = names if len(names) < len(LETTERS) else [*names[: len(LETTERS) - 1], OTHER]
        self._letters = {name: LETTERS[i] for i, name in enumerate(self.kinds)}

    @classmethod
    def of(cls, rows: Iterable[IndexRow]) -> TraceIndex:
        seqs, kinds_of, sizes, depths = tuple(zip(*rows, strict=True)) or ((), (), (), ())
        return cls(seqs, kinds_of, sizes, depths if any(depths) else ())

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def last_seq(self) -> int:
        return max(self.seqs, default=0)

    @property
    def first_of_last_attempt(self) -> int:
        """Position of the first event of the attempt that counts."""
        if RESTART not in self.counts:
            return 0
        return len(self) - 1 - self._kinds_of[::-1].index(RESTART)

    def seqs_of(self, kinds: Collection[str]) -> list[int]:
        """Of the events of these kinds; of all without one."""
        if not kinds:
            return self.seqs
        pairs = zip(self.seqs, self._kinds_of, strict=True)
        return [seq for seq, kind in pairs if kind in kinds]

    def as_json(self) -> dict[str, Any]:
        in_order = self.seqs == list(range(1, len(self) + 1))
        other = self._letters.get(OTHER, "")
        letters = {kind: self._letters.get(kind, other) for kind in self.counts}
        return {
            "kinds": self.kinds,
            "codes": "".join(map(letters.__getitem__, self._kinds_of)),
            "sizes": "".join(map(size_letter, self._sizes)),
            "seqs": None if in_order else self.seqs,
            "depths": "".join(LETTERS[min(depth, 61)] for depth in self._depths),
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


@lru_cache(1 << 16)
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
