"""A bucket for each caller, in a file that all web processes of a machine map into their memory.

The file is a table of SLOTS rows: a hash of the caller, what was left in the bucket, and when. A
caller's row is one of PROBES beyond the place that the hash names; with all of them taken the one
that was not asked for longest is given up, and whose it was starts with a full bucket. Times are of
the system's monotonic clock, which all processes share; after a restart of the machine it begins
anew, and so does a bucket whose time is in the future.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SLOTS = 8_192
PROBES = 16
LOCK_S = 0.05
"""A process that was stopped with the lock in its hand must not stop the others: after so long they
go on, and at worst a request is not counted."""
_ROW = struct.Struct("<16sdd")
_NOBODY = bytes(16)
_never = threading.Event()


class SharedBuckets:
    """Takes one drop for each request. OSError if the file cannot be made."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()  # between threads; flock is between processes
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, SLOTS * _ROW.size)
        self._table = mmap.mmap(self._fd, SLOTS * _ROW.size)

    def take(self, caller: str, per_minute: int, now: float) -> float:
        """0.0 when it may go on, else seconds until it may."""
        who = hashlib.blake2b(caller.encode(), digest_size=16).digest()
        with self._held():
            place, left, at = self._row(who, float(per_minute), now)
            if at > now:
                left, at = float(per_minute), now
            left = min(per_minute, left + (now - at) * per_minute / 60)
            wait_s = 0.0 if left >= 1 else (1 - left) * 60 / per_minute
            _ROW.pack_into(self._table, place, who, left if wait_s else left - 1, now)
            return wait_s

    def close(self) -> None:
        self._table.close()
        os.close(self._fd)

    def _row(self, who: bytes, full: float, now: float) -> tuple[int, float, float]:
        """Where the caller's row is or may be, what is left, and since when."""
        first = int.from_bytes(who[:8], "little")
        oldest, oldest_at = 0, float("inf")
        for probe in range(PROBES):
            place = (first + probe) % SLOTS * _ROW.size
            owner, left, at = _ROW.unpack_from(self._table, place)
            if owner == who:
                return place, left, at
            if owner == _NOBODY:
                return place, full, now
            if at < oldest_at:
                oldest, oldest_at = place, at
        return oldest, full, now

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._lock:
            is_held = self._locked()
            try:
                yield
            finally:
                if is_held:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _locked(self) -> bool:
        give_up_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up_s:
                    return False
                _never.wait(0.0005)
            else:
                return True
