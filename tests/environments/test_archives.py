"""Zip files from the browser: whatever is wrong with one is a sentence, never a failure of ours."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments.authoring.archives import ArchiveRefusedError, unzipped, zipped

MARKER = "environment.yaml"
_random = random.Random(7)
FILES = {
    MARKER: "name: Words\nkind: qa\n",
    "tasks.jsonl": "".join(chr(_random.randrange(0x20, 0x7F)) for _ in range(2_000)),
}
ARCHIVE = zipped("words", FILES)


def test_what_goes_in_comes_out() -> None:
    assert unzipped(ARCHIVE, marker=MARKER) == {p: text.encode() for p, text in FILES.items()}


@settings(max_examples=400)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(ARCHIVE) - 1), st.integers(0, 255)), min_size=1, max_size=4
    ),
    length=st.one_of(st.just(len(ARCHIVE)), st.integers(0, len(ARCHIVE))),
)
def test_a_damaged_archive_is_refused_or_read(changes: list[tuple[int, int]], length: int) -> None:
    damaged = bytearray(ARCHIVE)
    for place, value in changes:
        damaged[place] = value
    with contextlib.suppress(ArchiveRefusedError):
        unzipped(bytes(damaged[:length]), marker=MARKER)


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        pytest.param(6, 0xE7, id="a version that no program knows"),
        pytest.param(42, 0x80, id="a place before the file"),
    ],
)
def test_a_directory_that_makes_no_sense_is_refused(offset: int, value: int) -> None:
    damaged = bytearray(ARCHIVE)
    entry = damaged.index(b"PK\x01\x02")
    damaged[entry + offset] = value
    damaged[entry + offset + 3] = value
    with pytest.raises(ArchiveRefusedError):
        unzipped(bytes(damaged), marker=MARKER)


def test_a_stream_that_cannot_be_unpacked_is_refused() -> None:
    damaged = bytearray(ARCHIVE)
    start = damaged.index(b"tasks.jsonl") + len("tasks.jsonl")
    damaged[start : start + 40] = b"\xff" * 40
    with pytest.raises(ArchiveRefusedError, match="cannot be read"):
        unzipped(bytes(damaged), marker=MARKER)
