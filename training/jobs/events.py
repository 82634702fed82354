"""events.jsonl: appended by the runner, read by offset.

A line is complete when it ends in a newline; a killed writer may leave half a line, which the next
runner removes before it appends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.errors import CheckpointError

_BLOCK = 1 << 20


class EventLog:
    """The writing side; one per runner."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _drop_half_line(path)

    def append(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Append one event durably. Raises CheckpointError if the disk does not take it."""
        line = json.dumps({"kind": kind, "at": time.time(), **payload}, allow_nan=False) + "\n"
        try:
            with self._path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CheckpointError(f"cannot append to {self._path}: {error.strerror}") from error

    def has(self, kind: str, step: int) -> bool:
        """Whether this was reported of a step already."""
        events, _ = read_events(self._path, 0)
        return any(event["kind"] == kind and event.get("step") == step for event in events)


def read_events(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Complete events from a byte offset on, and the offset to continue from."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    end = data.rfind(b"\n") + 1
    events = [json.loads(line) for line in data[:end].splitlines() if line.strip()]
    return events, offset + end


def _drop_half_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _BLOCK))
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
