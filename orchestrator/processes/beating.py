"""The thread that writes a process's sign of life, with its figures."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import Error, connection
from django.utils import timezone

from orchestrator import measures, tracing
from orchestrator.processes.build import VERSION, build
from orchestrator.processes.models import Process

log = structlog.get_logger(__name__)

_FORGET_AFTER = timedelta(hours=1)
"""A process that was killed leaves its row; the others remove it."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_running: dict[str, Beating] = {}


class Beating:
    """One process's row. `beat` writes it; `start` does so for as long as the process lives."""

    def __init__(self, kind: str, *, queues: Sequence[str] = (), slots: int = 0) -> None:
        self.key = secrets.token_hex(16)
        self._fixed: dict[str, Any] = {
            "kind": kind,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": list(queues),
            "slots": slots,
            "version": VERSION,
        }
        self._started_at = timezone.now()
        self._stop = threading.Event()
        self.written_s: float | None = None
        """When the last sign of life was committed, on the monotonic clock."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="sign-of-life", daemon=True).start()

    def stop(self) -> None:
        """A process that ends in order takes its row with it."""
        self._stop.set()
        try:
            Process.objects.filter(key=self.key).delete()
        except Error as error:
            log.info("sign of life not removed", error=str(error))

    def beat(self) -> None:
        """Raises django.db.Error."""
        now, skew_s = database_clock()
        measures.CLOCK_SKEW_SECONDS.set(skew_s)
        _look_at_self()
        began_s = time.perf_counter()
        Process.objects.update_or_create(
            key=self.key,
            defaults={
                **self._fixed,
                "build": build(),
                "started_at": self._started_at,
                "seen_at": now,
                "skew_s": skew_s,
                "measures": measures.snapshot(),
            },
        )
        measures.DATABASE_WRITE_SECONDS.observe(time.perf_counter() - began_s)
        self.written_s = time.monotonic()
        forgotten = Process.objects.filter(seen_at__lt=now - _FORGET_AFTER)
        if forgotten.exists():  # else a write for nothing, which would wait for its turn
            forgotten.delete()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.beat()
            except Error as error:
                # Migrations may be under way, or the database away: the next one may succeed.
                log.info("sign of life not written", error=str(error))
            except Exception:
                # The outermost loop of the thread: a fault here must not end the signs of life.
                log.exception("sign of life failed")
            finally:
                connection.close()
            self._stop.wait(settings.PROCESS_BEAT_S)


def begin(kind: str, *, queues: Sequence[str] = (), slots: int = 0) -> None:
    """Starts the signs of life of this process, once for each kind of part that it plays."""
    if kind not in _running:
        _running[kind] = Beating(kind, queues=queues, slots=slots)
        _running[kind].start()
        atexit.register(end, kind)
        tracing.start(kind, VERSION)


def end(kind: str) -> None:
    if (running := _running.pop(kind, None)) is not None:
        running.stop()


def own_key(kind: str) -> str | None:
    """Of this process's row, if it plays that part."""
    running = _running.get(kind)
    return None if running is None else running.key


def database_clock() -> tuple[datetime, float]:
    """The database's clock, and how far this host's is ahead of it in seconds."""
    if connection.vendor != "postgresql":
        return timezone.now(), 0.0
    before = time.time()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (there,) = cursor.fetchone()
    here = (before + time.time()) / 2
    assert isinstance(there, datetime)
    return there, here - there.timestamp()


def _look_at_self() -> None:
    measures.CPU_SECONDS.set(time.process_time())
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            measures.RESIDENT_BYTES.set(int(file.read().split()[1]) * _PAGE_BYTES)
    except (OSError, ValueError, IndexError):
        measures.RESIDENT_BYTES.set(0)
    measures.DISK_FREE_BYTES.set(shutil.disk_usage(settings.DATA_DIR).free)
