"""What a new prompt can take over from earlier work.

Two things are kept, both under a byte limit and dropped longest-unused first: *prefixes*, stored
once and read by many rows, and *finished sequences*, whose keys and values a follow-up turn
copies into its row. Neither changes a result: the keys and values of a token depend only on the
tokens before it and on the adapter.

Where a prefix ends is found from the prompts themselves: among recent and waiting prompts, the
length that saves most, that is length times the number of prompts sharing it. An existing prefix
is preferred unless it is much shorter. Prompts that continue one another (turns of one
conversation) and equal prompts (samples of one task) say nothing about where the shared part
ends, so they do not count.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from training.engine.kv import Block, Ids, Pool, Prefix, join

MIN_PREFIX = 32
"tokens; below this a prefix costs more bookkeeping than it saves"
KEEP_SHARE = 0.75
"an existing prefix of at least this share of the best length is used instead of a new one"
RECENT = 32
"prompts remembered per adapter"


def common_length(left: Ids, right: Ids) -> int:
    """Number of equal leading tokens."""
    length = min(len(left), len(right))
    unequal = np.flatnonzero(left[:length] != right[:length])
    return int(unequal[0]) if len(unequal) else length


def shared_length(ids: Ids, peers: Iterable[Ids]) -> int:
    """Length of the beginning of `ids` that is worth sharing with the peers; 0 for none."""
    lengths = []
    for peer in peers:
        length = common_length(ids, peer)
        if length < min(len(ids), len(peer)):
            lengths.append(length)
    lengths.sort(reverse=True)
    best, best_saving = 0, 0
    for count, length in enumerate(lengths, start=1):
        if length >= MIN_PREFIX and length * count > best_saving:
            best, best_saving = length, length * count
    return best


class Own(Protocol):
    """Where a sequence's own keys and values lie: in a block, or in a row of the pool."""

    def part(self, start: int, end: int) -> Block:
        """Own tokens [start, end)."""
        ...


@dataclass(frozen=True)
class PoolRow:
    """The own tokens of a row in flight."""

    pool: Pool
    index: int

    def part(self, start: int, end: int) -> Block:
        return self.pool.copy(self.index, start, end)


@dataclass(frozen=True, eq=False)
class Sequence:
    """A run of computed tokens: those of `prefix`, then those of `own`."""

    ids: Ids
    prefix: Prefix | None
    own: Own

    def take(self, start: int, end: int) -> Block | None:
        """Keys and values of tokens [start, end); None if that is empty."""
        split = len(self.prefix.ids) if self.prefix else 0
        blocks = []
        if self.prefix and start < split:
            blocks.append(self.prefix.block.part(start, min(end, split)))
        if end > split:
            blocks.append(self.own.part(max(start, split) - split, end - split))
        blocks = [block for block in blocks if block.length > 0]
        if not blocks:
            return None
        return blocks[0] if len(blocks) == 1 else join(blocks)


class Store:
    """Prefixes and finished sequences by adapter. Used by the sampler's thread only."""

    def __init__(self, *, prefix_bytes: int, sequence_bytes: int) -> None:
        self._limit_prefixes, self._limit_sequences = prefix_bytes, sequence_bytes
        self._prefixes: OrderedDict[tuple[Hashable, bytes], Prefix] = OrderedDict()
        self._sequences: OrderedDict[tuple[Hashable, bytes], Sequence] = OrderedDict()
        self._sizes: dict[tuple[Hashable, bytes], int] = {}
        self._recent: dict[Hashable, deque[Ids]] = {}

    @property
    def size_bytes(self) -> int:
        prefixes = sum(prefix.block.size_bytes for prefix in self._prefixes.values())
        return prefixes + sum(self._sizes.values())

    def note_prompt(self, key: Hashable, ids: Ids) -> None:
        """Remembers a prompt as a hint for later ones."""
        recent = self._recent.setdefault(key, deque(maxlen=RECENT))
        if not any(np.array_equal(ids, known) for known in recent):
            recent.append(ids)

    def wanted_prefix(self, key: Hashable, ids: Ids, waiting: Iterable[Ids]) -> Prefix | int:
        """The existing prefix to use, or the length of a new one (0: none)."""
        limit = len(ids) - 1
        length = min(shared_length(ids, [*self._recent.get(key, ()), *waiting]), limit)
        known = [
            (len(prefix.ids), place)
            for place, prefix in self._prefixes.items()
            if place[0] == key
            and len(prefix.ids) <= limit
            and np.array_equal(prefix.ids, ids[: len(prefix.ids)])
        ]
        if known:
            best, place = max(known, key=lambda item: item[0])
            if best >= KEEP_SHARE * length:
                self._prefixes.move_to_end(place)
                return self._prefixes[place]
        return length

    def add_prefix(self, key: Hashable, prefix: Prefix) -> None:
        self._prefixes[key, prefix.ids.tobytes()] = prefix
        size = sum(known.block.size_bytes for known in self._prefixes.values())
        while size > self._limit_prefixes and len(self._prefixes) > 1:
            _, dropped = self._prefixes.popitem(last=False)
            size -= dropped.block.size_bytes
            # Sequences that begin with it would keep its memory alive.
            for place in [p for p, s in self._sequences.items() if s.prefix is dropped]:
                self._drop_sequence(place)

    def add_sequence(self, key: Hashable, ids: Ids, prefix: Prefix | None, own: Block) -> None:
        """Keeps a finished sequence; earlier turns that it continues are dropped.

        One whose prefix was dropped meanwhile is not kept: it would hold the prefix's memory, which
        nobody counts.
        """
        if prefix is not None and self._prefixes.get((key, prefix.ids.tobytes())) is not prefix:
            return
        for place, known in list(self._sequences.items()):
            if place[0] == key and common_length(known.ids, ids) == len(known.ids):
                self._drop_sequence(place)
        place = (key, ids.tobytes())
        self._sequences[place] = Sequence(ids, prefix, own)
        self._sizes[place] = own.size_bytes
        while sum(self._sizes.values()) > self._limit_sequences:
            self._drop_sequence(next(iter(self._sequences)))

    def _drop_sequence(self, place: tuple[Hashable, bytes]) -> None:
        del self._sequences[place], self._sizes[place]

    def best_source(
        self, key: Hashable, ids: Ids, in_flight: Iterable[Sequence]
    ) -> tuple[int, Sequence | None]:
        """The computed sequence that shares most leading tokens, and how many."""
        best, best_length, best_place = None, 0, None
        for place, sequence in self._sequences.items():
            if place[0] == key:
                length = common_length(ids, sequence.ids)
                if length > best_length:
                    best, best_length, best_place = sequence, length, place
        for sequence in in_flight:
            length = common_length(ids, sequence.ids)
            if length > best_length:
                best, best_length, best_place = sequence, length, None
        if best_place is not None:
            self._sequences.move_to_end(best_place)
        return best_length, best

    def forget(self, key: Hashable) -> None:
        """Drops everything of one adapter."""
        self._recent.pop(key, None)
        for place in [place for place in self._prefixes if place[0] == key]:
            del self._prefixes[place]
        for place in [place for place in self._sequences if place[0] == key]:
            self._drop_sequence(place)
