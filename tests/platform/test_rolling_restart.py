"""Every process of a scaled installation is restarted in turn, under load: nothing is lost, nothing
is done twice, and no request fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings

from tests.doubles.model_server import Asked, ScriptedModel
from tests.doubles.openenv_servers import FaultServer
from tests.platform.rolling import Host, proxy, sweep, wait_ready, web, worker
from tests.platform.test_scale import servers
from tests.runs.drive import FINISH
from tests.waiting import wait_until

__all__ = ["servers"]
pytestmark = [pytest.mark.slow, pytest.mark.stack]

TASKS, CONCURRENCY = 4, 2
_SET_UP = """
import django, json, sys
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from orchestrator.projects.models import Role, User
from orchestrator.projects.services import create_project, issue_token
from tests.trainings.build import parts
fault_url, model_url = sys.argv[1:]
user = User.objects.create_user("roller")
project = create_project(actor=user, name="Rolling")
token = issue_token(actor=user, project_id=project.pk, name="t", role=Role.EDITOR)
made = parts(project, base_url=fault_url, model_url=model_url)
work = {name: made[name].pk for name in ("model", "harness")}
work["rubric"] = made["rubric_version"].rubric_id
work["environment"] = made["environment_version"].environment.slug
print(json.dumps({"project": project.pk, "token": token.secret, "work": work}))
"""


class Load:
    """Sends traces, starts runs and reads lists, and keeps what was acknowledged."""

    def __init__(self, url: str, made: dict[str, Any]) -> None:
        self._base = f"{url}/api/v1/projects/{made['project']}"
        self._headers = {"Authorization": f"Bearer {made['token']}"}
        self._work_on = made["work"]
        self.runs: set[int] = set()
        self.acknowledged: set[str] = set()
        self.failures: list[str] = []
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._work, args=(work, pause_s), daemon=True)
            for work, pause_s in ((self._send, 0.05), (self._read, 0.05), (self._run, 1.5))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(200)

    def _work(self, work: Any, pause_s: float) -> None:
        number = 0
        while not self._stop.wait(pause_s):
            number += 1
            try:
                work(number)
            except Exception as error:  # the boundary: told by the test
                self.failures.append(f"{work.__name__} {number}: {error!r}")

    def _send(self, number: int) -> None:
        ids = [f"{number}-{i}" for i in range(3)]
        lines = [
            {"rollout": f"r{number}", "id": name, "seq": i, "kind": "observation", "content": "x"}
            for i, name in enumerate(ids, start=1)
        ]
        body = "\n".join(json.dumps(line) for line in lines).encode()
        headers = {**self._headers, "Content-Type": "application/x-ndjson"}
        self._ask(urllib.request.Request(f"{self._base}/ingest", body, headers))
        self.acknowledged.update(ids)

    def _read(self, number: int) -> None:
        self._ask(urllib.request.Request(f"{self._base}/runs", headers=self._headers))

    def _run(self, number: int) -> None:
        asked = {**self._work_on, "split": "train", "n_tasks": TASKS, "concurrency": CONCURRENCY}
        headers = {**self._headers, "Content-Type": "application/json"}
        body = json.dumps({**asked, "label": str(number)}).encode()
        run = self._ask(urllib.request.Request(f"{self._base}/runs", body, headers))
        self.runs.add(run["id"])

    def _ask(self, request: urllib.request.Request) -> Any:
        with urllib.request.urlopen(request, timeout=180) as answer:
            assert answer.status < 300
            return json.loads(answer.read())


def test_each_process_is_restarted_under_load(servers: dict[str, str], tmp_path: Path) -> None:
    environ = {
        **servers,
        "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
        "SECRET_KEY": "the-same-on-all-hosts-0123456789-0123456789-0123456789",
        "SWITCHBACK_BLOBS": str(tmp_path / "blobs"),
        "SWITCHBACK_DRAIN_S": "120",
        "SWITCHBACK_API_REQUESTS_PER_MINUTE": "0",
        "SWITCHBACK_LOG_LEVEL": "WARNING",
    }
    webs = [web(tmp_path, f"web{n}", environ) for n in (1, 2)]
    workers = [worker(tmp_path, f"worker{n}", environ) for n in (1, 2)]
    sweeps = [sweep(tmp_path, f"sweep{n}", environ) for n in (1, 2)]
    hosts = [*webs, *workers, *sweeps]

    def slow(asked: Asked) -> str:
        threading.Event().wait(1.0)  # so that there are always rollouts under way
        return FINISH

    with ExitStack() as exits:
        fault = FaultServer(tmp_path / "env")
        (tmp_path / "env").mkdir()
        exits.callback(fault.stop)
        _start(fault)
        model = ScriptedModel(slow)
        model.start()
        exits.callback(model.stop)
        made = _set_up(environ, tmp_path, fault.base_url, model.url)
        for host in hosts:
            exits.callback(host.kill)
            host.start()
        for host in webs:
            wait_ready(host)
        front = exits.enter_context(proxy(webs))
        load = Load(front.url, made)
        database = exits.enter_context(psycopg.connect(servers["DATABASE_URL"], autocommit=True))
        with load.running():
            _wait_for(database, "SELECT count(*) >= 2 FROM runs_rollout WHERE state = 'running'")
            for host in hosts:
                _restart(host, database)
        _wait_for(database, "SELECT count(*) = 0 FROM runs_run WHERE ended_at IS NULL", limit_s=600)

        assert load.failures == []
        assert front.faults == []
        stored = _column(database, "SELECT body::jsonb ->> 'id' FROM traces_outsideevent")
        assert load.acknowledged <= set(stored)
        assert len(load.acknowledged) > 30, "the load was there"
        ids = ",".join(map(str, load.runs))
        rollouts = f"FROM runs_rollout WHERE run_id = ANY(ARRAY[{ids}])"
        assert len(load.runs) > 4, "the load was there"
        assert _column(database, f"SELECT DISTINCT state {rollouts}") == ["scored"]
        assert _column(database, f"SELECT count(*) {rollouts}") == [len(load.runs) * TASKS]
        # Whoever had begun one finished it: nothing was asked of a model twice.
        assert _column(database, f"SELECT DISTINCT attempt {rollouts}") == [1]
        assert len(model.asked) == len(load.runs) * TASKS


def _start(fault: FaultServer) -> None:
    import asyncio

    asyncio.run(fault.start())


def _set_up(environ: dict[str, str], folder: Path, *urls: str) -> dict[str, Any]:
    import os

    answer = subprocess.run(
        [sys.executable, "-c", _SET_UP, *urls],
        cwd=settings.BASE_DIR,
        env={**os.environ, **environ, "SWITCHBACK_DATA": str(folder / "setup")},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def _restart(host: Host, database: psycopg.Connection[Any]) -> None:
    """As an operator does: the next one only when this one works again."""
    host.stop()
    host.start()
    assert host.process is not None
    if host.port:
        wait_ready(host)
    elif "worker" in host.name:
        pid = host.process.pid
        seen = f"SELECT count(*) > 0 FROM processes_process WHERE pid = {pid}"
        _wait_for(database, seen)


def _wait_for(database: psycopg.Connection[Any], query: str, *, limit_s: float = 180.0) -> None:
    wait_until(lambda: _column(database, query) == [True], limit_s=limit_s, what=query)


def _column(database: psycopg.Connection[Any], query: str) -> list[Any]:
    return [row[0] for row in database.execute(query).fetchall()]
