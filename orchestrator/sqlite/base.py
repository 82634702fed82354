"""One transaction writes at a time: here the others wait for their turn instead of guessing it.

SQLite lets whoever finds the database locked sleep and try again, longer each time, up to 100 ms:
eight clients that each wrote for 5 ms had one of them wait for half a second. Now the threads of a
process take turns by a lock, and the one whose turn it is looks again and again whether another
process has finished. After `timeout` seconds both waits fail as SQLite's own: `database is locked`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from django.db.backends.sqlite3 import base
from django.db.utils import OperationalError

LOOK_S = 0.0003
"""A look takes .02 ms; what others wait for takes 1 to 5."""
_WRITES = {"INSERT", "UPDATE", "DELETE"}
_BUSY = 5  # SQLITE_BUSY; further bits say why


class _Turns:
    """A lock for each database and process: what a fork copies may be held by a thread that is not
    there."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        os.register_at_fork(after_in_child=self._locks.clear)

    def of(self, database: str) -> threading.Lock:
        return self._locks.setdefault(database, threading.Lock())


_turns = _Turns()
_never = threading.Event()


_SHORT = 8_192  # characters: what is kept is bounded, and long statements come seldom twice


@lru_cache(maxsize=1_024)
def _with_question_marks(query: str) -> str:
    return base.FORMAT_QMARK_REGEX.sub("?", query).replace("%%", "%")


class _Cursor(base.SQLiteCursorWrapper):
    """Statements that write outside a transaction are transactions of their own."""

    owner: DatabaseWrapper

    def convert_query(self, query: str, *, param_names: Any = None) -> str:
        if param_names is None and len(query) < _SHORT:
            return _with_question_marks(query)
        converted: str = super().convert_query(query, param_names=param_names)
        return converted

    def execute(self, query: str, params: Any = None) -> Any:
        if query[:6].upper() in _WRITES and not self.connection.in_transaction:
            return self.owner.write_in_turn(lambda: super(_Cursor, self).execute(query, params))
        return super().execute(query, params)


class DatabaseWrapper(base.DatabaseWrapper):
    # The stubs leave out what backends are to override.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: threading.Lock | None = None
        self._limit_s = float(self.settings_dict["OPTIONS"].get("timeout", 5.0))

    def create_cursor(self, name: Any = None) -> _Cursor:
        cursor = self.connection.cursor(factory=_Cursor)
        cursor.owner = self
        return cast(_Cursor, cursor)

    def _start_transaction_under_autocommit(self) -> None:
        self.ensure_connection()
        self._take_turn(super()._start_transaction_under_autocommit)  # type: ignore[misc]

    def write_in_turn(self, write: Callable[[], Any]) -> Any:
        try:
            return self._take_turn(write)
        finally:
            self._release()

    def _take_turn(self, begin: Callable[[], Any]) -> Any:
        """Raises what SQLite raises, `database is locked` if the turn does not come in time."""
        give_up_s = time.monotonic() + self._limit_s
        lock = _turns.of(str(self.settings_dict["NAME"]))
        if not lock.acquire(timeout=self._limit_s):
            raise OperationalError("database is locked")
        self._held = lock
        try:
            self.connection.execute("PRAGMA busy_timeout = 0")
            try:
                while True:
                    try:
                        return begin()
                    except (OperationalError, sqlite3.OperationalError) as error:
                        if not _is_busy(error) or time.monotonic() >= give_up_s:
                            raise
                    _never.wait(LOOK_S)
            finally:
                self.connection.execute(f"PRAGMA busy_timeout = {int(self._limit_s * 1_000)}")
        except BaseException:
            self._release()
            raise

    def _commit(self) -> None:
        try:
            super()._commit()  # type: ignore[misc]
        finally:
            self._release_if_ended()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]
        finally:
            self._release_if_ended()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]
        finally:
            self._release()

    def _release_if_ended(self) -> None:
        if self.connection is None or not self.connection.in_transaction:
            self._release()

    def __del__(self) -> None:
        # A thread that ended within a transaction: SQLite has undone it.
        self._release()

    def _release(self) -> None:
        lock, self._held = self._held, None
        if lock is not None:
            lock.release()


def _is_busy(error: Exception) -> bool:
    cause = error if isinstance(error, sqlite3.Error) else error.__cause__
    return isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode & 0xFF == _BUSY
