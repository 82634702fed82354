"""A sequence never keeps the memory of a prefix that the store has dropped."""

from __future__ import annotations

import numpy as np
import torch

from training.engine.kv import Block, Prefix
from training.engine.reuse import Store


def block(tokens: int) -> Block:
    return Block(torch.zeros(2, 1, tokens, 4), torch.zeros(2, 1, tokens, 4))


def ids(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_a_row_that_outlives_its_prefix_is_not_kept() -> None:
    first, second = Prefix(ids(1, 2, 3), block(3)), Prefix(ids(4, 5, 6), block(3))
    store = Store(prefix_bytes=first.block.size_bytes, sequence_bytes=1 << 20)
    store.add_prefix("m", first)
    store.add_prefix("m", second)  # pushes the first out while a row still uses it
    store.add_sequence("m", ids(1, 2, 3, 9), first, block(1))
    assert store.size_bytes == second.block.size_bytes
    store.add_sequence("m", ids(4, 5, 6, 9), second, block(1))
    assert store.size_bytes > second.block.size_bytes
