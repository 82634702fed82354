"""What is acknowledged exists, what is started ends, and how fast: the promises of durability.

    python -m benchmarks durability [--stack scale] [--only PART …] [--spans N] [--rollouts N]
        [--peers PYTHON [--peer phoenix]]

Parts, each on an empty installation of the real product (`manage.py up`):

- `ingest`: spans a second by OTLP, committed before the answer, with the workers up that index
  them; how long after the last answer the last word is found; and, after `SIGKILL` of all processes
  in the middle of more, how many acknowledged spans are missing. With `--peers`, an interpreter
  with Phoenix and MLflow, the same requests and the same kill for them.
- `dispatch`: from a job's commit to its first claim, one at a time.
- `recovery`: from the death of a job's worker to the next claim.
- `watchers`: 200 sockets on one stream, 100 events/s: commit to arrival, over all of both.
- `soak`: rollouts, 64 side by side, and the slope of the memory of the process that runs them.
- `second_worker`: see `durability_workers`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.children import tied
from benchmarks.durability_spans import PROTOBUF, Sent, requests, send_all
from benchmarks.durability_stack import Installation, installed
from benchmarks.figures import Figure, percentile
from benchmarks.stack import ROOT

INGEST_BAR_HZ = {"embedded": 1_500.0, "scale": 3_000.0}
FOUND_BAR_S = 30.0
DISPATCH_BAR_MS, RECOVERY_BAR_S, WATCHERS_BAR_MS = 50.0, 10.0, 150.0
SLOPE_BAR_MB = 1.0
"""Of 1,000 rollouts, after the first fifth."""
N_DISPATCHED, N_KILLS, N_RECOVERIES = 200, 3, 3
N_WATCHERS, WATCHED_EVENTS, WATCHED_HZ = 200, 2_000, 100.0
CONCURRENT = 64
SPANS_TO_KILL = 25_000
_WAIT_S = 120.0


def run(options: Sequence[str] = ()) -> Iterator[Figure]:
    parser = argparse.ArgumentParser(prog="durability")
    parser.add_argument("--stack", choices=sorted(INGEST_BAR_HZ), default="embedded")
    parser.add_argument("--only", choices=[*_PARTS, "second_worker"], action="append")
    parser.add_argument("--spans", type=int, default=30_000)
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--peers", help="interpreter of an environment with the peers")
    parser.add_argument("--peer", choices=["phoenix", "mlflow"], help="that one alone")
    asked = parser.parse_args(list(options))
    yield Figure("durability.load_of_the_machine", os.getloadavg()[0], None)
    wanted = asked.only or [*_PARTS, "second_worker"]
    if len(wanted) > 1:
        # A process each: settings, and with them the data folder, are read once per process.
        yield from _each(wanted, list(options), asked)
        return
    if wanted[0] in _PARTS:
        yield from _PARTS[wanted[0]](asked)
    elif importlib.util.find_spec("benchmarks.durability_workers"):
        workers: Any = importlib.import_module("benchmarks.durability_workers")
        yield from workers.run(asked.stack)


def _each(wanted: Sequence[str], options: list[str], asked: Any) -> Iterator[Figure]:
    kept = ["--stack", asked.stack, "--spans", str(asked.spans), "--rollouts", str(asked.rollouts)]
    if asked.peers:
        kept += ["--peers", asked.peers, *(["--peer", asked.peer] if asked.peer else [])]
    for part in wanted:
        command = [sys.executable, "-m", "benchmarks", "durability", *kept, "--only", part]
        answer = subprocess.run(tied(command), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        lines = [json.loads(line) for line in answer.stdout.splitlines()]
        for told in lines:
            value = float("nan") if told["value"] is None else told["value"]
            # Whether a bar was missed is known: a floor is the one kind that the line cannot tell.
            is_floor = told["bar"] is not None and (value >= told["bar"]) == told["ok"]
            yield Figure(told["name"], value, told["bar"], is_floor=is_floor)
        if answer.returncode and not any(not told["ok"] for told in lines):
            yield Figure(f"durability.{part}.failed", 1, 0)


# Ingest


def _ingest(asked: Any) -> Iterator[Figure]:
    name = f"durability.{asked.stack}.ingest"
    with installed(asked.stack, {"SWITCHBACK_API_REQUESTS_PER_MINUTE": "0"}) as installation:
        address, read, headers = _door(installation)
        send_all(address, requests(2_000, seed=1), headers)  # to warm up
        made = requests(asked.spans)
        journal = send_all(address, made, headers)
        yield Figure(f"{name}.spans_per_s", journal.rate_hz, INGEST_BAR_HZ[asked.stack], True)
        yield Figure(f"{name}.requests_refused", journal.refused, 0)
        last = journal.answered[-1]
        found_s = _seconds_until(lambda: _finds(read, last.word, headers))
        yield Figure(f"{name}.words_found_after_s", found_s, FOUND_BAR_S)
        lost = acknowledged = 0
        draw = random.Random(9)
        for number in range(N_KILLS):
            more = requests(SPANS_TO_KILL, at_once=100, seed=10 + number)
            timer = threading.Timer(draw.uniform(1.0, 4.0), installation.kill)
            timer.start()
            killed = send_all(address, more, headers)
            timer.join()
            installation.start()
            acknowledged += killed.n_spans
            lost += _missing(killed.answered)
        yield Figure(f"{name}.acknowledged_before_kill", acknowledged, None)
        yield Figure(f"{name}.lost_after_kill", lost, 0)
    if asked.peers:
        from benchmarks.durability_peers import measured

        yield from measured(asked.peers, asked.peer, asked.spans)


def _door(installation: Installation) -> tuple[str, str, dict[str, str]]:
    """Addresses to send spans to and to find words at, and the headers for both."""
    from orchestrator.projects.models import Role, User
    from orchestrator.projects.services import create_project, issue_token

    user = User.objects.create_user("bench")
    project = create_project(actor=user, name="Bench")
    token = issue_token(actor=user, project_id=project.pk, name="bench", role=Role.EDITOR)
    base = f"{installation.url}/api/v1/projects/{project.pk}"
    headers = {**PROTOBUF, "Authorization": f"Bearer {token.secret}"}
    return f"{base}/otlp/v1/traces", f"{base}/events", headers


def _finds(address: str, word: str, headers: dict[str, str]) -> bool:
    query = urllib.parse.urlencode({"q": word})
    wanted = {"Authorization": headers["Authorization"]}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{address}?{query}", headers=wanted), timeout=30
        ) as answer:
            return bool(json.load(answer)["events"])
    except OSError:
        return False


def _missing(answered: Sequence[Sent]) -> int:
    """Acknowledged spans that the database does not have, read past the server."""
    from orchestrator.traces.models import OutsideEvent

    stored = {
        (json.loads(name), json.loads(body)["id"])
        for name, body in OutsideEvent.objects.values_list("owner__name", "body").iterator()
    }
    return sum(span not in stored for sent in answered for span in sent.spans)


# Jobs


def _dispatch(asked: Any) -> Iterator[Figure]:
    with installed(asked.stack, {}):
        waits_ms = []
        for number in range(N_DISPATCHED + 5):
            job = _job(0.0)
            _seconds_until(lambda job=job: _reread(job).is_ended)  # type: ignore[misc]
            if number >= 5:  # the first ones meet a worker that is still starting
                waits_ms.append(1_000 * (job.started_at - job.created_at).total_seconds())
    yield Figure(f"durability.{asked.stack}.dispatch_p50_ms", percentile(waits_ms, 0.5), None)
    yield Figure(
        f"durability.{asked.stack}.dispatch_p95_ms", percentile(waits_ms, 0.95), DISPATCH_BAR_MS
    )


def _recovery(asked: Any) -> Iterator[Figure]:
    took_s = []
    with installed(asked.stack, {}):
        for _ in range(N_RECOVERIES):
            job = _job(5.0)
            _seconds_until(lambda job=job: _reread(job).attempt == 1)  # type: ignore[misc]
            os.kill(int(job.worker.rpartition(":")[2]), signal.SIGKILL)
            took_s.append(
                _seconds_until(lambda job=job: _reread(job).attempt > 1)  # type: ignore[misc]
            )
            _seconds_until(lambda job=job: _reread(job).is_ended)  # type: ignore[misc]
    yield Figure(f"durability.{asked.stack}.recovery_worst_s", max(took_s), RECOVERY_BAR_S)


def _job(linger_s: float) -> Any:
    """One that finds nothing to do and ends after so many seconds."""
    from orchestrator.events.indexing import JOB_KIND
    from orchestrator.jobs.services import enqueue

    return enqueue(kind=JOB_KIND, spec={"linger_s": linger_s})


def _reread(job: Any) -> Any:
    job.refresh_from_db()
    return job


def _seconds_until(is_true: Callable[[], bool], limit_s: float = _WAIT_S) -> float:
    """NaN when it does not come true."""
    started_s = time.monotonic()
    while (now_s := time.monotonic() - started_s) < limit_s:
        if is_true():
            return time.monotonic() - started_s
        time.sleep(0.01)
    return float("nan") if now_s >= limit_s else now_s


# Watchers


def _watchers(asked: Any) -> Iterator[Figure]:
    limit = {"SWITCHBACK_FEED_SOCKETS_PER_USER": str(N_WATCHERS)}
    with installed(asked.stack, limit) as installation:
        from benchmarks.live import _prepare

        stream_id, cookie = _prepare()
        socket = f"{installation.url.replace('http', 'ws')}/ws/streams/{stream_id}/"
        watchers = subprocess.Popen(
            tied(
                [
                    *(sys.executable, "-m", "benchmarks.durability_watchers", socket, cookie),
                    *(str(N_WATCHERS), str(WATCHED_EVENTS)),
                ]
            ),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watchers.stdout is not None
        if watchers.stdout.readline().strip() != "ready":
            raise RuntimeError("the watchers could not all connect")
        writer = subprocess.run(
            tied(
                [
                    *(sys.executable, "-m", "benchmarks.live_writer", str(stream_id)),
                    *(str(WATCHED_EVENTS), str(WATCHED_HZ)),
                ]
            ),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        committed_s = [float(line.split()[1]) for line in writer.stdout.splitlines()]
        arrived_s = json.loads(watchers.stdout.read())
        watchers.wait(60)
    waits_ms = [
        max(0.0, 1_000 * (at_s - committed))
        for own in arrived_s
        for at_s, committed in zip(own, committed_s, strict=True)
        if at_s is not None
    ]
    name = f"durability.{asked.stack}.watchers"
    rate_hz = len(committed_s) / (committed_s[-1] - committed_s[0])
    yield Figure(f"{name}.rate_hz", rate_hz, 0.95 * WATCHED_HZ, is_floor=True)
    yield Figure(f"{name}.missed", N_WATCHERS * WATCHED_EVENTS - len(waits_ms), 0)
    yield Figure(f"{name}.commit_to_arrival_p95_ms", percentile(waits_ms, 0.95), WATCHERS_BAR_MS)


def _soak(asked: Any) -> Iterator[Figure]:
    from benchmarks.durability_soak import soaked

    seen = soaked(asked.rollouts, CONCURRENT)
    yield Figure("durability.soak.rollouts_per_s", seen.rate_hz, None)
    yield Figure("durability.soak.memory_at_end_mb", seen.last_mb, None)
    yield Figure("durability.soak.memory_mb_per_1000_rollouts", seen.slope_mb, SLOPE_BAR_MB)


_PARTS: dict[str, Callable[[Any], Iterator[Figure]]] = {
    "ingest": _ingest,
    "dispatch": _dispatch,
    "recovery": _recovery,
    "watchers": _watchers,
    "soak": _soak,
}
