"""What a second worker process adds where the environment is the limit: steps of 200 ms.

Real workers (Celery, one job at a time each) on a real environment server; the agent's side always
says the same, so that no model is needed. As many runs as two workers can share evenly are executed
by one worker, then by two. The rate is that of all rollouts, from the first start to the last end.

`python -m benchmarks.durability_workers` is such a worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.children import tied
from benchmarks.durability_stack import prepared
from benchmarks.figures import Figure
from benchmarks.stack import ROOT

RATIO_BAR = 1.7
STEPS, CONCURRENCY = 5, 8
ROLLOUTS, RUNS = 48, 4
"""Of each run; runs of each measurement."""
_LIMIT_S = 600.0
_KIND = "slow"


def run(stack: str = "embedded") -> Iterator[Figure]:
    from benchmarks import rollouts
    from benchmarks.rollouts import ACTIONS, _Engine, _server

    rollouts.STEPS = {_KIND: {CONCURRENCY: STEPS}}
    ACTIONS[_KIND] = ACTIONS["plain"]
    rates = {}
    with prepared(stack, {}), _server(_KIND) as url:
        engine = _Engine(_KIND, url)
        with ExitStack() as exits:
            exits.enter_context(_sweeping())
            for workers in (1, 2):
                process = _started(workers)
                exits.callback(_end, process)
                _await_worker(engine, process)
                rates[workers] = _measured(engine, RUNS, workers=workers)
    name = f"durability.{stack}.second_worker"
    for workers, rate_hz in rates.items():
        yield Figure(f"{name}.rollouts_per_s_{workers}", rate_hz, None)
    yield Figure(f"{name}.ratio", rates[2] / rates[1], RATIO_BAR, is_floor=True)


def _await_worker(engine: Any, process: subprocess.Popen[bytes]) -> None:
    """Runs, which also warm up, until it has taken one."""
    from orchestrator.jobs.models import Job

    taken = Job.objects.filter(worker__endswith=f":{process.pid}")
    while not taken.exists():
        if process.poll() is not None:
            raise RuntimeError("a worker did not start")
        _measured(engine, 2)


def _measured(engine: Any, runs: int, *, workers: int = 0) -> float:
    """Rollouts a second of `runs` runs that are queued at once.

    Raises RuntimeError unless `workers` workers had a share in them.
    """
    from django.db.models import Max, Min

    from orchestrator.runs.models import Run

    started = [engine.started(ROLLOUTS, STEPS, CONCURRENCY) for _ in range(runs)]
    rows = Run.objects.filter(pk__in=[each.pk for each in started])
    deadline_s = time.monotonic() + _LIMIT_S
    while rows.filter(ended_at__isnull=True).exists():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the runs did not end within {_LIMIT_S:g} s")
        time.sleep(0.1)
    for each in rows:
        if each.rollouts.exclude(state="scored").exists():
            raise RuntimeError(f"a run has rollouts without a score: {each.error}")
    took_part = set(rows.values_list("job__worker", flat=True))
    if workers and len(took_part) != workers:
        raise RuntimeError(f"{took_part} did the runs, and {workers} workers were there")
    times = rows.aggregate(begin=Min("started_at"), end=Max("ended_at"))
    return float(runs * ROLLOUTS / (times["end"] - times["begin"]).total_seconds())


def _started(number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.durability_workers", str(number)]
    return subprocess.Popen(tied(command), cwd=ROOT, stdout=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


class _sweeping:
    """Messages of this process's commits are sent by itself; the sweep repairs what is lost."""

    def __enter__(self) -> None:
        from orchestrator.management.sweeper import sweep_until

        self._stop = threading.Event()
        self._thread = threading.Thread(target=sweep_until, args=(self._stop,), daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def main(number: str) -> None:
    """A worker whose agent says the same to everything."""
    import django

    django.setup()
    from benchmarks.rollouts import ACTIONS, _Scripted
    from orchestrator.celery import app
    from orchestrator.runs import engine

    engine.conversation_for = lambda *_: _Scripted(json.dumps(ACTIONS["plain"]))
    app.worker_main(
        [
            *("worker", "-P", "threads", "-c", "1", "-Q", "default,rollouts"),
            *("-n", f"bench{number}@%h", "-l", "WARNING"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1])
