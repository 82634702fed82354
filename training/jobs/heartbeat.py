"""A thread that shows that the runner lives, and a counter that shows that it works.

Both are needed: a stale file means dead; a fresh file whose counter does not move past the deadline
of its phase means hung. The thread also ends the process when its parent is gone, where the kernel
was not asked or could not be asked to do that.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

INTERVAL_S = 2.0
STALE_AFTER_S = 15.0


class Heartbeat:
    """Owns heartbeat.json; `enter` and `advance` are for the main loop."""

    def __init__(
        self,
        path: Path,
        *,
        interval_s: float = INTERVAL_S,
        on_orphaned: Callable[[], None],
        supervisor: int | None = None,
    ) -> None:
        """`supervisor`: a process beside the parent whose end counts as its end."""
        self._path = path
        self._interval_s = interval_s
        self._on_orphaned = on_orphaned
        self._parent = os.getppid()
        self._supervisor = supervisor
        self._boot_id = boot_id()
        self._lock = threading.Lock()  # the fields below are written by one thread, read by two
        self._step = 0
        self._phase = "starting"
        self._progress = 0
        self._deadline: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Write the first beat and keep writing."""
        self._write()
        self._thread.start()

    def enter(self, phase: str, *, step: int, timeout_s: float | None = None) -> None:
        """Begin a phase; `timeout_s` from now it counts as hung."""
        with self._lock:
            self._phase, self._step = phase, step
            self._deadline = None if timeout_s is None else time.time() + timeout_s
            self._progress += 1
        self._write()

    def advance(self) -> None:
        """Something inside the phase was done."""
        with self._lock:
            self._progress += 1

    def stop(self, phase: str) -> None:
        """Write a last beat; the process is about to end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        with self._lock:
            self._phase, self._deadline = phase, None
        self._write()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._write()
            if os.getppid() != self._parent or self._is_alone():
                self._on_orphaned()

    def _is_alone(self) -> bool:
        return self._supervisor is not None and not Path(f"/proc/{self._supervisor}").exists()

    def _write(self) -> None:
        with self._lock:
            beat = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "boot_id": self._boot_id,
                "step": self._step,
                "phase": self._phase,
                "progress": self._progress,
                "deadline": self._deadline,
                "at": time.time(),
            }
            # Renamed but not synced: after a power cut a lost beat means dead, which is true. The
            # lock covers the file as well, since both threads use one temporary name.
            temporary = self._path.with_suffix(".tmp")
            try:
                temporary.write_text(json.dumps(beat) + "\n", encoding="utf-8")
                temporary.replace(self._path)
            except OSError:
                # A full disk must not kill the thread that shows the process lives; the main loop
                # meets the same disk and reports it.
                temporary.unlink(missing_ok=True)


def boot_id() -> str:
    """Distinguishes a pid from the same number after a reboot; empty where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
