"""Phoenix and MLflow on the same spans: how fast they answer, and what a kill takes from them.

Each runs alone on an empty SQLite folder, gets the requests of `durability_spans` by OTLP, and is
killed (`SIGKILL`, all of its processes) while more of them come. Then it is started again, and the
spans that it answered 200 for are counted in its own database, once their number stands.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.children import tied
from benchmarks.durability_spans import PROTOBUF, Journal, Sent, requests, send_all
from benchmarks.durability_stack import LIMIT_S, _answers, group_of
from benchmarks.figures import Figure
from benchmarks.stack import free_port
from benchmarks.ui_peers import PEERS, Peer

KILL_AFTER_S = 4.0
SPANS_TO_KILL = 25_000
_TABLE = {"phoenix": ("phoenix.db", "span_id"), "mlflow": ("mlflow.db", "span_id")}
"""File, and the column of its table `spans`."""
_STANDS_S = 5.0


def measured(python: str, only: str | None, n_spans: int) -> Iterator[Figure]:
    for peer in PEERS:
        if only in (None, peer.name):
            with TemporaryDirectory(prefix="switchback-peer-", ignore_cleanup_errors=True) as own:
                yield from _measured(peer, python, Path(own), n_spans)


def _measured(peer: Peer, python: str, folder: Path, n_spans: int) -> Iterator[Figure]:
    name = f"durability.peers.{peer.name}"
    headers = {**PROTOBUF, **peer.headers}
    server = _Server(peer, python, folder)
    try:
        url = server.start()
        journal = send_all(f"{url}/v1/traces", requests(n_spans), headers)
        yield Figure(f"{name}.spans_per_s", journal.rate_hz, None)
        yield Figure(f"{name}.requests_refused", journal.refused, None)
        behind_s = time.monotonic()
        counted = _stands(folder, peer, at_least=journal.n_spans)
        yield Figure(f"{name}.stored_after_s", time.monotonic() - behind_s, None)
        yield Figure(f"{name}.never_stored", journal.n_spans - len(counted), None)
        more = requests(SPANS_TO_KILL, at_once=100, seed=6)
        killed = _killed_while_sending(server, f"{url}/v1/traces", more, headers)
        server.start()
        counted = _stands(folder, peer, at_least=journal.n_spans + killed.n_spans)
        lost = sum(span not in counted for sent in killed.answered for _, span in sent.spans)
        yield Figure(f"{name}.acknowledged_before_kill", killed.n_spans, None)
        yield Figure(f"{name}.lost_after_kill", lost, None)
    finally:
        server.kill()


def _killed_while_sending(
    server: _Server, url: str, made: Sequence[Sent], headers: Mapping[str, str]
) -> Journal:
    timer = threading.Timer(KILL_AFTER_S, server.kill)
    timer.start()
    try:
        return send_all(url, made, headers)
    finally:
        timer.join()


class _Server:
    def __init__(self, peer: Peer, python: str, folder: Path) -> None:
        self._peer, self._python, self._folder = peer, python, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                tied(self._peer.command(self._python, port, str(self._folder))),
                env={**os.environ, **self._peer.env(port, str(self._folder))},
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline_s = time.monotonic() + LIMIT_S
        while not _answers(url + self._peer.alive):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{self._peer.name} does not answer: see its log\n{self._log()}")
            time.sleep(0.2)
        return url

    def kill(self) -> None:
        if self._process is None:
            return
        for pid in group_of(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(60)
        self._process = None

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2_000:]


def _stands(folder: Path, peer: Peer, *, at_least: int) -> set[str]:
    """Its span ids, once all are there, or their number has not changed for some seconds."""
    deadline_s = time.monotonic() + LIMIT_S
    found: set[str] = set()
    changed_s = time.monotonic()
    while time.monotonic() < deadline_s:
        now = _spans(folder, peer)
        if len(now) >= at_least:
            return now
        if len(now) != len(found):
            found, changed_s = now, time.monotonic()
        elif time.monotonic() - changed_s > _STANDS_S:
            break
        time.sleep(0.5)
    return found


def _spans(folder: Path, peer: Peer) -> set[str]:
    file, column = _TABLE[peer.name]
    try:
        with closing(sqlite3.connect(f"file:{folder / file}?mode=ro", uri=True)) as database:
            rows = database.execute(f"SELECT {column} FROM spans")
            return {str(row[0]).removeprefix("0x") for row in rows}
    except sqlite3.Error:
        return set()
