"""Whether a large event is better kept as a blob: the price of writing it and of reading it back.

A row of SQLite against a synced file of the blob store, for payloads of some sizes, ten to a
transaction as appends are batched; then all of them read back. Reported only: it is why payloads
stay in their rows.
"""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Figure
from orchestrator.blobs.folder import FolderStore

SIZES = (1_000, 4_000, 16_000, 64_000)
"""Bytes."""
N, BATCH = 200, 10


def run() -> Iterator[Figure]:
    yield Figure("payloads.load_of_the_machine", os.getloadavg()[0], None)
    with tempfile.TemporaryDirectory(prefix="switchback-bench-") as name:
        folder = Path(name)
        for size in SIZES:
            draw = random.Random(size)
            payloads = [draw.randbytes(size // 2).hex() for _ in range(N)]
            database = _database(folder / f"{size}.sqlite3")
            blobs = FolderStore(folder / str(size))
            kept: list[str] = []
            costs = {
                "write_row": _ms(lambda d=database, p=payloads: _insert(d, p)),  # type: ignore[misc]
                "write_blob": _ms(
                    lambda b=blobs, p=payloads, k=kept: k.extend(  # type: ignore[misc]
                        b.put(each.encode()).sha256 for each in p
                    )
                ),
                "read_row": _ms(lambda d=database: d.execute("SELECT * FROM event").fetchall()),  # type: ignore[misc]
                "read_blob": _ms(lambda b=blobs, k=kept: [b.read(each) for each in k]),  # type: ignore[misc]
            }
            database.close()
            for what, cost_ms in costs.items():
                yield Figure(f"payloads.{size}.{what}_ms", cost_ms, None)


def _database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, payload TEXT)")
    return database


def _insert(database: sqlite3.Connection, payloads: list[str]) -> None:
    for begin in range(0, N, BATCH):
        database.execute("BEGIN IMMEDIATE")
        rows = [(payload,) for payload in payloads[begin : begin + BATCH]]
        database.executemany("INSERT INTO event (payload) VALUES (?)", rows)
        database.execute("COMMIT")


def _ms(work: Callable[[], object]) -> float:
    """Of one payload."""
    begin_s = time.perf_counter()
    work()
    return 1_000 * (time.perf_counter() - begin_s) / N
