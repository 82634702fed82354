"""Real `manage.py up` trees for tests: pages, workers and sweep in processes of their own.

They share the database of the test process (a file, or the test run's PostgreSQL), so a test makes
its data with the factories of `tests.base` and reads results with the ORM. Data folder, broker and
ports are their own. Jobs of the shared database run in such a tree: do not start one beside tests
that start workers themselves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection

from orchestrator.projects.models import User
from tests.waiting import wait_until

START_LIMIT_S = 120.0


@dataclass
class LiveStack:
    """One `manage.py up` on a folder of its own. It can be killed and started again."""

    data: Path
    port: int
    model_port: int
    environ: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """What all starts of `up` have printed."""
        path = self.data / "up.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def full_environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "SWITCHBACK_WEB_PROCESSES": "1",
            "SWITCHBACK_TEST_DATA": str(self.data),
            "SWITCHBACK_TEST_DATABASE": str(connection.settings_dict["NAME"]),
            "SWITCHBACK_MODEL_PORT": str(self.model_port),
            "SWITCHBACK_LOG_LEVEL": "INFO",
            **self.environ,
        }

    def start(self) -> None:
        """Starts `up` and waits until its pages answer."""
        self.launch()
        wait_until(
            self.answers, limit_s=START_LIMIT_S, what=f"pages at {self.url}; {self.output[-2000:]}"
        )
        # They start when the pages are up.
        wait_until(
            lambda: {"worker", "gpu"} <= set(self.children()), limit_s=60, what="the workers"
        )

    def launch(self) -> subprocess.Popen[bytes]:
        """Starts `up` without waiting."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "manage.py", "up", "--port", str(self.port), *self.arguments]
        with (self.data / "up.out").open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=settings.BASE_DIR, env=self.full_environ(), stdout=out, stderr=out
            )
        return self.process

    def answers(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"`up` ended: {self.output[-2000:]}")
        try:
            return httpx.get(f"{self.url}/healthz", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    def children(self) -> dict[str, psutil.Process]:
        """The running children by name: web, worker, gpu, model."""
        assert self.process is not None
        found = {}
        for child in psutil.Process(self.process.pid).children():
            try:
                command = child.cmdline()
            except psutil.Error:
                continue  # it has just ended
            for name, word in (
                ("web", "orchestrator.asgi:application"),
                ("worker", "default,rollouts"),
                ("gpu", "gpu"),
                ("model", "training.serve"),
            ):
                if word in command:
                    found[name] = child
        return found

    def kill_child(self, name: str) -> None:
        """SIGKILL for one child and its process group; the supervisor starts it again."""
        os.killpg(self.children()[name].pid, signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL for the supervisor alone; its children must end by themselves."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def discard(self) -> None:
        """Ends the whole tree at once: tests need not wait for a graceful stop."""
        if self.process is None or self.process.poll() is not None:
            return
        tree = [*psutil.Process(self.process.pid).children(recursive=True)]
        self.kill()
        for child in tree:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(tree, timeout=5)

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self, name: str) -> str:
        path = self.data / "logs" / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def log_records(self, name: str) -> list[dict[str, object]]:
        """The lines of a child's log that are JSON."""
        return [json.loads(line) for line in self.log(name).splitlines() if line.startswith("{")]


def session_cookie(user: User) -> str:
    """The value of a `sessionid` cookie that signs `user` in."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    assert session.session_key is not None
    return session.session_key


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


MakeStack = Callable[..., LiveStack]


@pytest.fixture
def make_stack(transactional_db: None, tmp_path: Path) -> Iterator[MakeStack]:
    """`make_stack(arguments=[…], environ={…})`: a tree, not started, that ends with the test."""
    made: list[LiveStack] = []

    def make(
        *, arguments: list[str] | None = None, environ: dict[str, str] | None = None
    ) -> LiveStack:
        stack = LiveStack(
            data=tmp_path / f"stack{len(made)}",
            port=free_port(),
            model_port=free_port(),
            environ=environ or {},
            arguments=["--no-model"] if arguments is None else arguments,
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.discard()


@pytest.fixture(scope="module")
def _module_stack(
    django_db_setup: None, django_db_blocker: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveStack]:
    stack = LiveStack(
        data=tmp_path_factory.mktemp("live"),
        port=free_port(),
        model_port=free_port(),
        arguments=["--no-model"],
    )
    stack.start()
    yield stack
    stack.discard()


@pytest.fixture
def live_stack(transactional_db: None, _module_stack: LiveStack) -> LiveStack:
    """A running tree, shared by the tests of a module; the database is emptied after each."""
    return _module_stack
