"""Keys and values of the rows in flight, and of prefixes.

A row sees a *prefix* (shared, read only, stored once) and its *own* tokens. Own tokens of all
rows lie in one padded tensor, rows packed at the front: a decode step reads a plain slice,
without gathering. A row that leaves is replaced by the last one.

Axes: `L` layers, `R` rows, `K` key-value heads, `S` own tokens, `P` prefix tokens, `D` head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.llama import LlamaConfig

GROWTH = 32
"own capacity grows in steps of this many tokens"
ROW_GROWTH = 8
"and in rows in steps of this many"

Ids = NDArray[np.int64]


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True, eq=False)
class Block:
    """Keys and values of a run of tokens: `[L, K, T, D]` each."""

    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        return int(self.keys.shape[2])

    @property
    def size_bytes(self) -> int:
        return 2 * self.keys.numel() * self.keys.element_size()

    def part(self, start: int, end: int) -> Block:
        """A view of tokens [start, end)."""
        return Block(self.keys[:, :, start:end], self.values[:, :, start:end])

    def copy(self) -> Block:
        return Block(self.keys.contiguous().clone(), self.values.contiguous().clone())


def join(blocks: list[Block]) -> Block:
    """One block of consecutive ones."""
    return Block(
        torch.cat([block.keys for block in blocks], dim=2),
        torch.cat([block.values for block in blocks], dim=2),
    )


@dataclass(frozen=True, eq=False)
class Prefix:
    """A shared beginning under one adapter."""

    ids: Ids
    block: Block


class Pool:
    """Own keys and values of the rows in flight."""

    def __init__(self, config: LlamaConfig) -> None:
        self._shape = (
            config.num_hidden_layers,
            config.num_key_value_heads,
            config.head_dim,
        )
        self.rows = 0
        self.capacity = 0
        self.keys, self.values = self._empty(0, 0), self._empty(0, 0)

    def _empty(self, rows: int, capacity: int) -> Tensor:
        layers, heads, size = self._shape
        # Zeros, because a masked value of garbage could be NaN, and 0 * NaN is NaN.
        return torch.zeros(layers, rows, heads, capacity, size)

    def reserve(self, rows: int, capacity: int) -> None:
        """Room for `rows` rows of `capacity` own tokens, which must cover the rows that are there.

        Both follow the present need: neither many rows nor one long row, once gone, multiply with
        the other.
        """
        if rows <= self.keys.shape[1] and capacity <= self.capacity:
            return
        rows, capacity = round_up(rows, ROW_GROWTH), round_up(capacity, GROWTH)
        kept = min(self.capacity, capacity)
        # One after the other: the old and the new copy of only one of the two exist at a time.
        self.keys = self._grown(self.keys, rows, capacity, kept)
        self.values = self._grown(self.values, rows, capacity, kept)
        self.capacity = capacity

    def _grown(self, old: Tensor, rows: int, capacity: int, kept: int) -> Tensor:
        grown = self._empty(rows, capacity)
        grown[:, : self.rows, :, :kept] = old[:, : self.rows, :, :kept]
        return grown

    def append(self, block: Block | None) -> int:
        """A new row that begins with the block; returns its index. Room must be reserved."""
        index = self.rows
        self.rows += 1
        if block is not None and block.length:
            self.keys[:, index, :, : block.length] = block.keys
            self.values[:, index, :, : block.length] = block.values
        return index

    def view(self, index: int, start: int, end: int) -> Block:
        return Block(self.keys[:, index, :, start:end], self.values[:, index, :, start:end])

    def remove(self, index: int, last_length: int) -> None:
        """Takes a row out; the last row, of `last_length` own tokens, takes its place."""
        last = self.rows - 1
        if index != last:
            self.keys[:, index, :, :last_length] = self.keys[:, last, :, :last_length]
            self.values[:, index, :, :last_length] = self.values[:, last, :, :last_length]
        self.rows = last
        if not self.rows:
            # An idle server keeps no row memory.
            self.clear()

    def clear(self) -> None:
        """Forgets all rows."""
        self.rows = self.capacity = 0
        self.keys, self.values = self._empty(0, 0), self._empty(0, 0)

    @property
    def size_bytes(self) -> int:
        return 2 * self.keys.numel() * self.keys.element_size()
