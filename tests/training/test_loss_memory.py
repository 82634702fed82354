"""What the loss holds at once is a chunk of the head, however long the sequence is."""

from __future__ import annotations

import pytest

from benchmarks.training.memory import head_bytes
from training.head import DEFAULT_CHUNK


@pytest.mark.slow
def test_the_peak_does_not_grow_with_the_sequence() -> None:
    vocabulary, hidden = 6000, 16
    short, long = (
        head_bytes(chunks * DEFAULT_CHUNK, vocabulary=vocabulary, hidden=hidden)
        for chunks in (1, 12)
    )
    # Positions and wanted tokens, 16 bytes each, are all that grows.
    assert long == pytest.approx(short, rel=0.02)
    assert long <= DEFAULT_CHUNK * vocabulary * 12 + vocabulary * hidden * 4
