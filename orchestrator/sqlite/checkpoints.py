"""Copies what was committed from SQLite's log into the database, beside those who write.

SQLite does so itself in whichever commit finds 1,000 pages in the log, and syncs both files in it:
of the starts of runs one in twenty took 5 to 10 ms more, and all who waited to write with it. A
passive checkpoint of another connection holds nobody up. SQLite's own is left for a log that nobody
looks after, at 64 MB (`settings.SQLITE_OPTIONS`).
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import structlog

EVERY_S = 0.5
log = structlog.get_logger(__name__)


def checkpoint_until(stop: threading.Event, database: Path, *, every_s: float = EVERY_S) -> None:
    """Whatever goes wrong in a round, which the next may mend: a full disk, a file that is gone."""
    is_failing = False
    while not stop.wait(every_s):
        try:
            checkpoint(database)
            is_failing = False
        except sqlite3.Error as error:
            if not is_failing:
                log.warning("checkpoint failed", error=str(error))
            is_failing = True


def checkpoint(database: Path) -> int:
    """Pages of the log that are still to be copied since somebody reads what was before.

    Raises sqlite3.Error.
    """
    # Opened each time: a database that was restored or put elsewhere is another file.
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, timeout=0)) as opened:
        opened.execute("PRAGMA synchronous = NORMAL")
        _, in_log, copied = opened.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return max(0, int(in_log) - int(copied))
