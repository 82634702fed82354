"""Wakers: a thread per server process that says which streams to look at again.

They carry no data and may wake too often or miss; the log decides and the feed polls. After each
(re)connect everything is woken, since anything may have happened meanwhile.
"""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import structlog
from django.db import connections

from orchestrator.events.services import NOTIFY_CHANNEL

log = structlog.get_logger(__name__)

WakeUp = Callable[[frozenset[int] | None], object]
"""Called with the streams to look at; None means all."""

_PERIOD_S = 0.02
_REOPEN_S = 0.5
_IDS_PER_STATEMENT = 500


class Waker(ABC):
    def __init__(self, wake: WakeUp) -> None:
        self._wake = wake
        self._lock = threading.Lock()  # protects _watched, shared with the event loop's thread
        self._watched: set[int] = set()
        self._stop = threading.Event()
        self.restarts = 0
        """How often the connection was lost; for the log and for tests."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="waker", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread soon; a server never needs it, its process ends."""
        self._stop.set()

    def watch(self, stream_id: int) -> None:
        with self._lock:
            self._watched.add(stream_id)

    def unwatch(self, stream_id: int) -> None:
        with self._lock:
            self._watched.discard(stream_id)

    def watched(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._watched)

    @abstractmethod
    def listen(self) -> None:
        """Connects, wakes all, then wakes what changes until stopped; raises if the line breaks."""

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.listen()
            except RuntimeError as error:
                log.info("waker ends", reason=str(error))
                return  # the event loop is closed: the process ends
            except Exception as error:
                # The outermost loop of the thread: it must survive whatever breaks the connection.
                log.warning("waker lost its connection", error=str(error), restarts=self.restarts)
            self.restarts += 1
            self._stop.wait(_REOPEN_S)


class DataVersionWaker(Waker):
    """SQLite: `PRAGMA data_version` on a private connection changes when another one commits."""

    def listen(self) -> None:
        path = connections["default"].settings_dict["NAME"]
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        try:
            self._wake(None)
            known: dict[int, int] = {}
            version = None
            while not self._stop.wait(_PERIOD_S):
                (seen,) = database.execute("PRAGMA data_version").fetchone()
                if seen != version:
                    version = seen
                    advanced = self._advanced(database, known)
                    if advanced:
                        self._wake(advanced)
        finally:
            database.close()

    def _advanced(self, database: sqlite3.Connection, known: dict[int, int]) -> frozenset[int]:
        watched = sorted(self.watched())
        advanced: set[int] = set()
        for start in range(0, len(watched), _IDS_PER_STATEMENT):
            ids = watched[start : start + _IDS_PER_STATEMENT]
            marks = ",".join("?" * len(ids))
            query = f"SELECT id, last_seq FROM events_stream WHERE id IN ({marks})"
            for stream_id, last_seq in database.execute(query, ids):
                if known.get(stream_id) != last_seq:
                    known[stream_id] = last_seq
                    advanced.add(stream_id)
        return frozenset(advanced)


class NotifyWaker(Waker):
    """PostgreSQL: LISTEN on a connection of its own; appends notify in their transaction.

    Outside the pool. A transaction-pooling proxy breaks LISTEN: then only the poll remains.
    """

    def listen(self) -> None:
        import psycopg

        database = connections["default"].settings_dict
        options = {key: value for key, value in database["OPTIONS"].items() if key != "pool"}
        given = {
            "dbname": database["NAME"],
            "user": database["USER"],
            "password": database["PASSWORD"],
            "host": database["HOST"],
            "port": database["PORT"],
        }
        parameters = {**options, **{key: value for key, value in given.items() if value}}
        with psycopg.connect(**parameters, autocommit=True) as listener:
            listener.execute(f"LISTEN {NOTIFY_CHANNEL}")
            self._wake(None)
            while not self._stop.is_set():
                for notice in listener.notifies(timeout=1.0):
                    self._wake(frozenset({int(notice.payload)}))


def make_waker(wake: WakeUp) -> Waker:
    if connections["default"].vendor == "postgresql":
        return NotifyWaker(wake)
    return DataVersionWaker(wake)
