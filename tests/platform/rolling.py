"""Several web processes and workers on one database, as on several hosts, behind a small proxy.

Each process has a data folder of its own, as if each were alone on a host; the blobs are in one
folder that all reach. The proxy does what proxies do: it asks `/readyz`, sends requests to those
that are ready, and takes another where a connection is refused before anything was sent.
"""

from __future__ import annotations

import http.client
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from django.conf import settings

from tests.waiting import wait_until

_LIMIT_S = 180.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Host:
    """A process with a data folder of its own."""

    name: str
    folder: Path
    command: list[str]
    environ: dict[str, str]
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "out").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *self.command],
                cwd=settings.BASE_DIR,
                env={**os.environ, **self.environ, "SWITCHBACK_DATA": str(self.folder / "data")},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Its exit code."""
        assert self.process is not None
        self.process.send_signal(signum)
        return self.process.wait(_LIMIT_S)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def words(self) -> str:
        return (self.folder / "out").read_text(errors="replace")[-3000:]

    def is_ready(self) -> bool:
        return _status(self.port, "/readyz") == 200


def web(folder: Path, name: str, environ: dict[str, str], *, drain_s: float = 3.0) -> Host:
    port = free_port()
    command = ["-m", "orchestrator.web_process", "orchestrator.asgi:application"]
    command += ["--port", str(port), "--drain-s", str(drain_s)]
    return Host(name, folder / name, command, environ, port)


def worker(folder: Path, name: str, environ: dict[str, str]) -> Host:
    command = ["-m", "celery", "-A", "orchestrator.celery", "worker", "-P", "threads", "-c", "2"]
    command += ["-Q", "default,rollouts", "-n", f"{name}@%h", "-l", "INFO"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return Host(name, folder / name, command, environ)


def sweep(folder: Path, name: str, environ: dict[str, str]) -> Host:
    return Host(name, folder / name, ["manage.py", "sweep"], environ)


@dataclass
class Proxy:
    hosts: list[Host]
    port: int = 0
    faults: list[str] = field(default_factory=list)
    """Requests that no host answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def proxy(hosts: list[Host]) -> Iterator[Proxy]:
    made = Proxy(hosts)
    ready: list[Host] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            ready[:] = [host for host in hosts if host.is_ready()]

    turn = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            first = next(turn)
            now = list(ready) or hosts
            for offset in range(len(now)):
                host = now[(first + offset) % len(now)]
                inner = http.client.HTTPConnection("127.0.0.1", host.port, timeout=_LIMIT_S)
                try:
                    inner.connect()
                except OSError:
                    continue  # nothing was sent: another may have it
                try:
                    headers = {**self.headers, "Host": f"localhost:{host.port}"}
                    inner.request(self.command, self.path, body=body or None, headers=headers)
                    answer = inner.getresponse()
                    content = answer.read()
                except (OSError, http.client.HTTPException) as error:
                    made.faults.append(f"{self.command} {self.path} at {host.name}: {error!r}")
                    self._answer(502, str(error).encode())
                    return
                finally:
                    inner.close()
                self._answer(answer.status, content)
                return
            made.faults.append(f"{self.command} {self.path}: nobody listens")
            self._answer(503, b"nobody listens")

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

        do_GET = do_POST = _pass_on

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.port = server.server_port
    threads = [
        threading.Thread(target=watch, daemon=True),
        threading.Thread(target=server.serve_forever, daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        stop.set()
        server.shutdown()
        server.server_close()


def wait_ready(host: Host) -> None:
    wait_until(host.is_ready, limit_s=_LIMIT_S, what=f"{host.name} to be ready; {host.words}")


def _status(port: int, path: str) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        client.request("GET", path, headers={"Host": "localhost"})
        return client.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        client.close()
