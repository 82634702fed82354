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
    """Own keys and values of the rows in flight, one pair of tensors `[R, K, S, D]` per layer.

    Apart by layer, so that growing needs the old and the new copy of one layer only at a time.
    """

    def __init__(self, config: LlamaConfig) -> None:
        self._layers = config.num_hidden_layers
        self._heads, self._size = config.num_key_value_heads, config.head_dim
        self.clear()

    def clear(self) -> None:
        """Forgets all rows and frees their memory."""
        self.rows = self.capacity = self._row_capacity = 0
        self.keys = [self._empty(0, 0) for _ in range(self._layers)]
        self.values = [self._empty(0, 0) for _ in range(self._layers)]

    def _empty(self, rows: int, capacity: int) -> Tensor:
        # Zeros, because a masked value of garbage could be NaN, and 0 * NaN is NaN.
        return torch.zeros(rows, self._heads, capacity, self._size)

    def reserve(self, rows: int, capacity: int) -> None:
        """Room for `rows` rows of `capacity` own tokens, which must cover the rows that are there.

        Both follow the present need: neither many rows nor one long row, once gone, multiply with
        the other.
        """
        if rows <= self._row_capacity and capacity <= self.capacity:
            return
        rows, capacity = round_up(rows, ROW_GROWTH), round_up(capacity, GROWTH)
        kept = min(self.capacity, capacity)
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                grown = self._empty(rows, capacity)
                grown[: self.rows, :, :kept] = old[: self.rows, :, :kept]
                tensors[layer] = grown
        self._row_capacity, self.capacity = rows, capacity

    def append(self, block: Block | None) -> int:
        """A new row that begins with the block; returns its index. Room must be reserved."""
        index = self.rows
        self.rows += 1
        if block is not None and block.length:
            self.write(index, block)
        return index

    def write(self, index: int, block: Block) -> None:
        """Sets a row's first own tokens."""
        for layer in range(self._layers):
            self.keys[layer][index, :, : block.length] = block.keys[layer]
            self.values[layer][index, :, : block.length] = block.values[layer]

    def copy(self, index: int, start: int, end: int) -> Block:
        """Own tokens [start, end) of a row."""
        return Block(
            torch.stack([keys[index, :, start:end] for keys in self.keys]),
            torch.stack([values[index, :, start:end] for values in self.values]),
        )

    def remove(self, index: int, last_length: int) -> None:
        """Takes a row out; the last row, of `last_length` own tokens, takes its place."""
        last = self.rows - 1
        if index != last:
            for tensors in (self.keys, self.values):
                for tensor in tensors:
                    tensor[index, :, :last_length] = tensor[last, :, :last_length]
        self.rows = last
        if not self.rows:
            # An idle server keeps no row memory.
            self.clear()

    @property
    def size_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
