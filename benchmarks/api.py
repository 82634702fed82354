"""The REST API with 8 parallel clients at 100,000 runs: lists, details, and starting runs.

The web processes alone, on SQLite, with clients in another, and the thread of `manage.py up` that
looks after SQLite's log: no worker takes up the runs that are started, so the machine's other work
is left out. The clients share the two cores with the server:
they send by `http.client`, a third of httpx's time, and begin together when all are connected.
`--runs N`, `--requests N` of each kind (default
400), `--clients N`, `--processes N` (default 2: `SWITCHBACK_WEB_PROCESSES`). `--folder DIR` keeps
the data, or takes what was kept: writing 100,000 runs takes longer than all requests.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from benchmarks.children import tied
from benchmarks.figures import Figure, percentile
from benchmarks.stack import ROOT, use_data, use_temporary_data

if TYPE_CHECKING:
    from orchestrator.projects.models import Project

LIST_MS = 100.0
CREATE_MS = 60.0
START_S = 60.0
_AT_ONCE = 2_000
Send = Callable[["Client"], int]


def run(options: Sequence[str] = ()) -> Iterator[Figure]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks api")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(list(options))
    yield Figure("api.load_of_the_machine", os.getloadavg()[0], None)
    with use_temporary_data() if asked.folder is None else use_data(asked.folder):
        secret, project_id, body, last = _kept(asked.folder, asked.runs)
        with _served(asked.processes) as url:
            base = f"/api/v1/projects/{project_id}"
            headers = {"Authorization": f"Bearer {secret}"}
            chance = random.Random(0)
            numbers = itertools.count(time.time_ns())

            def listed(client: Client) -> int:
                return client.get(f"{base}/runs")

            def paged(client: Client) -> int:
                from orchestrator.api.paging import encoded

                cursor = quote(encoded(chance.randrange(1, last)))
                return client.get(f"{base}/runs?cursor={cursor}")

            def read(client: Client) -> int:
                return client.get(f"{base}/runs/{chance.randrange(1, last)}")

            def created(client: Client) -> int:
                return client.post(f"{base}/runs", body, f"bench-{next(numbers)}")

            n_faults = 0
            for name, send, bar in (
                ("list", listed, LIST_MS),
                ("list_anywhere", paged, LIST_MS),
                ("read_run", read, None),
                ("create_run", created, CREATE_MS),
            ):
                took_ms, faults, per_s = _measured(
                    send, url, headers, asked.requests, asked.clients
                )
                n_faults += faults
                yield Figure(f"api.{name}.p50_ms", percentile(took_ms, 0.5), None)
                yield Figure(f"api.{name}.p95_ms", percentile(took_ms, 0.95), bar)
                yield Figure(f"api.{name}.per_s", per_s, None)
            yield Figure("api.not_2xx", float(n_faults), 0.0)


class Client:
    """One connection that stays open. Answers are statuses."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        self._headers = headers

    def get(self, path: str) -> int:
        return self._status("GET", path, None, self._headers)

    def post(self, path: str, body: Any, key: str) -> int:
        more = {"Content-Type": "application/json", "Idempotency-Key": key}
        return self._status("POST", path, json.dumps(body), {**self._headers, **more})

    def close(self) -> None:
        self._connection.close()

    def _status(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> int:
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status


def _measured(
    send: Send, url: str, headers: dict[str, str], n_requests: int, n_clients: int
) -> tuple[list[float], int, float]:
    """Milliseconds of each request, how many answers were not 2xx, and requests a second."""
    together = threading.Barrier(n_clients + 1, timeout=60)

    def client(_: int) -> tuple[list[float], int]:
        took: list[float] = []
        faults = 0
        with closing(Client(url, headers)) as session:
            send(session)  # opens the connection
            together.wait()
            for _ in range(n_requests // n_clients):
                started_s = time.perf_counter()
                status = send(session)
                took.append((time.perf_counter() - started_s) * 1_000)
                faults += not 200 <= status < 300
        return took, faults

    with ThreadPoolExecutor(n_clients) as pool:
        running = [pool.submit(client, number) for number in range(n_clients)]
        together.wait()
        started_s = time.perf_counter()
        results = [each.result() for each in running]
        lasted_s = time.perf_counter() - started_s
    took = [ms for each, _ in results for ms in each]
    return took, sum(faults for _, faults in results), len(took) / lasted_s


def _kept(folder: Path | None, n_runs: int) -> tuple[str, int, dict[str, Any], int]:
    """As `_filled`, from the folder if it was filled before."""
    if folder is None:
        return _filled(n_runs)
    notes = folder / "bench.json"
    if not notes.exists():
        notes.write_text(json.dumps(_filled(n_runs)), encoding="utf-8")
    secret, project_id, body, last = json.loads(notes.read_text(encoding="utf-8"))
    return secret, project_id, body, last


def _filled(n_runs: int) -> tuple[str, int, dict[str, Any], int]:
    """A token, the project, the body that starts a run of 10 rollouts, and the newest run."""
    from orchestrator.projects.models import Role
    from orchestrator.projects.services import create_first_admin, create_project, issue_token

    admin = create_first_admin().user
    project = create_project(actor=admin, name="Many runs")
    body = _write_runs(project, n_runs)
    issued = issue_token(actor=admin, project_id=project.pk, name="bench", role=Role.EDITOR)
    from orchestrator.runs.models import Run

    return issued.secret, project.pk, body, Run.objects.latest("pk").pk


def _write_runs(project: Project, n_runs: int) -> dict[str, Any]:
    """Two rollouts each, as rows: what is measured is the API."""
    from django.db import connection, transaction
    from django.utils import timezone

    from optimizer.harness import Harness
    from optimizer.store import store_harness
    from orchestrator.agents.models import EndpointKind, ModelEndpoint
    from orchestrator.environments.models import Environment, EnvironmentKind
    from orchestrator.environments.services import NewTask, create_version
    from orchestrator.events.models import Stream
    from orchestrator.runs.models import Rollout, Run
    from rubrics.models import Rubric
    from rubrics.versions import create_rubric_version

    environment = Environment.objects.create(
        project=project, slug="bench", name="Bench", kind=EnvironmentKind.QA
    )
    tasks = [NewTask(key=f"t{n:03}", split="select", prompt="2 + 2?") for n in range(50)]
    version = create_version(environment=environment, source={}, tasks=tasks)
    criterion = {"id": "right", "name": "Right", "kind": "environment_reward", "weight": 1}
    rubric = create_rubric_version(
        rubric=Rubric.objects.create(project=project, name="Bench"), spec={"criteria": [criterion]}
    )
    model = ModelEndpoint.objects.create(
        project=project, name="m", kind=EndpointKind.LOCAL, model="m"
    )
    harness = store_harness(project_id=project.pk, harness=Harness(instructions="Act.\n"))
    task_ids = list(version.tasks.values_list("pk", flat=True))
    now = timezone.now()
    for first in range(0, n_runs, _AT_ONCE):
        n = min(_AT_ONCE, n_runs - first)
        with transaction.atomic():
            streams = Stream.objects.bulk_create(
                [Stream(project=project, kind="run") for _ in range(n)]
            )
            runs = Run.objects.bulk_create(
                Run(
                    project=project,
                    stream=stream,
                    environment_version=version,
                    rubric_version=rubric,
                    model=model,
                    purpose="evaluate",
                    label="bench",
                    state="completed",
                    started_at=now - timedelta(minutes=1),
                    ended_at=now,
                )
                for stream in streams
            )
            own = Stream.objects.bulk_create(
                [Stream(project=project, kind="rollout") for _ in range(2 * n)]
            )
            Rollout.objects.bulk_create(
                Rollout(
                    run=runs[place // 2],
                    stream=stream,
                    harness=harness,
                    task_id=task_ids[place % len(task_ids)],
                    replicate=0,
                    seed=place,
                    state="scored",
                    score=float(place % 3 == 0),
                )
                for place, stream in enumerate(own)
            )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return {
        "environment": "bench",
        "rubric": rubric.rubric_id,
        "model": model.pk,
        "harness": harness.pk,
        "n_tasks": 10,
    }


@contextmanager
def _served(n_processes: int) -> Iterator[str]:
    from django.db import connection

    from orchestrator.shared_socket import SharedSocket
    from orchestrator.sqlite.checkpoints import checkpoint_until

    with SharedSocket("127.0.0.1", 0) as shared:
        url = f"http://127.0.0.1:{shared.port}"
        processes = [
            subprocess.Popen(
                tied(shared.command()),
                cwd=ROOT,
                env={**os.environ, "SWITCHBACK_API_REQUESTS_PER_MINUTE": "0"},
                pass_fds=shared.fds,
            )
            for _ in range(n_processes)
        ]
        stop = threading.Event()
        database = Path(connection.settings_dict["NAME"])
        looking_after = threading.Thread(target=checkpoint_until, args=(stop, database))
        looking_after.start()
        try:
            _wait_for_all(url, processes)
            yield url
        finally:
            stop.set()
            looking_after.join()
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=30)


def _wait_for_all(url: str, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """One that came up late would have no connection when the others are measured."""
    from orchestrator.processes.models import Process

    mine = Process.objects.filter(pid__in=[each.pid for each in processes])
    deadline_s = time.monotonic() + START_S
    while not _answers(f"{url}/healthz") or mine.count() < len(processes):
        if any(each.poll() is not None for each in processes) or time.monotonic() > deadline_s:
            raise RuntimeError(f"the web server does not answer at {url}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
