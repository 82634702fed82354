"""Environment servers: started, watched, reused and stopped.

`LocalServer` runs a command as a child in a process group of its own, with an explicit environment
(never this process's, which holds secrets), listening on a UNIX socket in its private folder. It
dies with this process. Ready means that an episode was reset, not that `/health` answers; while
waiting, the process is watched, so that a command that fails at once is told at once.

`UrlServer` stands for a server that somebody else runs: the same interface, nothing to start.

`ServerPool` keeps one live server per specification in this process, starts a dead one again before
the next episode, and counts the slots: no route of OpenEnv tells how many are free.

Methods block (seconds at a start); asynchronous code uses `ServerPool.ready_server`. The interface
has the shape of OpenEnv's `ContainerProvider`, without importing it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from orchestrator.environments.actions import forget_schema
from orchestrator.environments.errors import Cause, EpisodeError, ServerStartError
from orchestrator.environments.session import EpisodeSession, EpisodeSettings

START_TIMEOUT_S = 60.0
STOP_GRACE_S = 3.0
LOG_TAIL_CHARS = 2000
MAX_SOCKET_PATH = 100
"""The kernel takes 107 bytes; a longer path moves to the temporary folder."""

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class ServerSpec:
    """How to run a server. Equal specifications share a server."""

    name: str
    """Of the environment; names the server's folder."""
    command: tuple[str, ...]
    """`{socket}` becomes the path to listen on, `{work}` a folder that is removed at the end."""
    capacity: int
    """Episodes at a time."""
    probe: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the reset that proves readiness."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables; the same placeholders."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


class Server(Protocol):
    """A place where episodes can be opened."""

    capacity: int

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start it and return its base address."""

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when an episode can be reset. `ServerStartError` if it does not come to that."""

    def stop_container(self) -> None:
        """End it. Safe to call twice."""

    def close(self) -> None:
        """End it and free what it held."""


class LocalServer:
    """One child process. See the module's text."""

    def __init__(self, spec: ServerSpec, folder: Path) -> None:
        self.spec = spec
        self.capacity = spec.capacity
        self.folder = folder
        self.log_path = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._socket_folder: Path | None = None
        self._work: Path | None = None
        self._socket: Path | None = None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and not _has_ended(self._process)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def base_url(self) -> str:
        if self._socket is None:
            raise ServerStartError(f"the server of {self.spec.name} was not started")
        return f"unix://{self._socket}"

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start the process; does not wait. `image` and `port` have no meaning here."""
        if self.is_alive:
            return self.base_url
        self.stop_container()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket = self._socket_path()
        environ = {**_base_environment(), **self.spec.env, **(env_vars or {})}
        names = {"{socket}": str(self._socket)}
        if any("{work}" in text for text in (*self.spec.command, *environ.values())):
            self._work = Path(tempfile.mkdtemp(prefix="switchback-server-"))
            names["{work}"] = str(self._work)
        launcher = [sys.executable, "-I", str(Path(__file__).with_name("launch.py"))]
        served = [_filled(part, names) for part in self.spec.command]
        with self.log_path.open("ab") as log:
            self._process = _spawn(
                [*launcher, str(os.getpid()), "--", *served],
                {name: _filled(value, names) for name, value in environ.items()},
                log.fileno(),
            )
        forget_schema(self.base_url)
        return self.base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Reset a first episode. `ServerStartError` with the end of the log."""
        try:
            asyncio.run(_ready(base_url, self.spec.probe, timeout_s, lambda: self.is_alive))
        except ServerStartError as exc:
            ended = ""
            if self._process is not None and _has_ended(self._process):
                ended = f" It ended with status {self._process.wait()}."
            self.stop_container()
            raise ServerStartError(
                f"The environment server of {self.spec.name} did not start: {exc}{ended} "
                f"It printed: {self.log_tail() or 'nothing'}"
            ) from exc

    def stop_container(self) -> None:
        """End the whole process group, politely first; remove socket and work folder."""
        process, self._process = self._process, None
        if process is not None:
            # The leader is reaped last, so that its number cannot belong to someone else; children
            # that outlived it are in its group still.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                _has_ended(process, within_s=STOP_GRACE_S)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        for folder in (self._socket_folder, self._work):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        self._socket_folder = self._work = None

    def close(self) -> None:
        self.stop_container()

    def log_tail(self) -> str:
        """The end of what the server printed; foreign text."""
        try:
            return self.log_path.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
        except FileNotFoundError:
            return ""

    def _socket_path(self) -> Path:
        path = self.folder.resolve() / f"{os.getpid()}.sock"
        for left in path.parent.glob("*.sock"):
            if not Path("/proc", left.stem).exists():
                left.unlink(missing_ok=True)
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            self._socket_folder = Path(tempfile.mkdtemp(prefix="switchback-"))
            path = self._socket_folder / "s.sock"
        path.unlink(missing_ok=True)
        return path

    def __enter__(self) -> Self:
        self.wait_for_ready(self.start_container())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class UrlServer:
    """A server that somebody else runs."""

    def __init__(
        self, base_url: str, capacity: int, probe: Mapping[str, Any] | None = None
    ) -> None:
        self.base_url = base_url
        self.capacity = capacity
        self._probe = dict(probe or {})

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        return self.base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        asyncio.run(_ready(base_url, self._probe, timeout_s, lambda: True))

    def stop_container(self) -> None:
        """Nothing: it is not ours."""

    def close(self) -> None:
        """Nothing: it is not ours."""


class ServerPool:
    """The servers of this process. Thread-safe; closed at the process's end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()  # protects the maps; a server's own lock its start
        self._servers: dict[str, LocalServer] = {}
        self._starting: dict[str, threading.Lock] = {}
        self._leases: dict[str, int] = {}
        atexit.register(self.close)

    @contextmanager
    def server(self, spec: ServerSpec) -> Iterator[LocalServer]:
        """A ready server for the time of the block; started, or started again, if need be.

        `ServerStartError` if it does not become ready.
        """
        key = spec.digest
        with self._lock:
            starting = self._starting.setdefault(key, threading.Lock())
            self._leases[key] = self._leases.get(key, 0) + 1
        try:
            with starting:
                server = self._ready_server(spec, key)
            yield server
        finally:
            with self._lock:
                self._leases[key] -= 1

    @asynccontextmanager
    async def ready_server(self, spec: ServerSpec) -> AsyncIterator[LocalServer]:
        """`server` for asynchronous code: the start happens in a thread."""
        with contextlib.ExitStack() as stack:
            yield await asyncio.to_thread(stack.enter_context, self.server(spec))

    def leases(self, spec: ServerSpec) -> int:
        """How many blocks use the server at the moment."""
        with self._lock:
            return self._leases.get(spec.digest, 0)

    def close_idle(self) -> None:
        """Stop the servers that nobody uses."""
        with self._lock:
            idle = [key for key in self._servers if not self._leases.get(key)]
            servers = [self._servers.pop(key) for key in idle]
        for server in servers:
            server.close()

    def close(self) -> None:
        """Stop all servers. Safe to call twice."""
        with self._lock:
            servers = list(self._servers.values())
            self._servers.clear()
        for server in servers:
            server.close()

    def _ready_server(self, spec: ServerSpec, key: str) -> LocalServer:
        with self._lock:
            server = self._servers.get(key)
        if server is not None and server.is_alive:
            return server
        if server is None:
            server = LocalServer(spec, self.root / spec.name / key)
        server.wait_for_ready(server.start_container())
        with self._lock:
            self._servers[key] = server
        return server


# --- readiness -----------------------------------------------------------------------------------


async def _ready(
    base_url: str, probe: Mapping[str, Any], timeout_s: float, is_alive: Callable[[], bool]
) -> None:
    """Until an episode was reset. A server that is full is ready as well."""
    settings = EpisodeSettings(connect_timeout_s=2, reset_timeout_s=timeout_s, slot_wait_s=0)
    last = "it did not listen"
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if not is_alive():
                    raise ServerStartError("its process ended.")
                try:
                    async with EpisodeSession.open(base_url, settings) as session:
                        await session.reset(**probe)
                    return
                except EpisodeError as exc:
                    if exc.cause is Cause.NO_CAPACITY:
                        return
                    last = exc.message
                    if exc.cause not in (Cause.ENV_UNREACHABLE, Cause.SERVER_LOST):
                        raise ServerStartError(last) from exc
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise ServerStartError(f"not ready within {timeout_s:g} s ({last}).") from None


# --- processes -----------------------------------------------------------------------------------


def _base_environment() -> dict[str, str]:
    """What a server gets of this process's environment: where programs and modules are."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SWITCHBACK_UNSANDBOXED")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ.setdefault("PATH", os.defpath)
    return {**environ, "PYTHONPATH": str(_REPOSITORY), "PYTHONUNBUFFERED": "1"}


def _filled(text: str, names: Mapping[str, str]) -> str:
    for placeholder, value in names.items():
        text = text.replace(placeholder, value)
    return text


def _has_ended(process: subprocess.Popen[bytes], within_s: float = 0.0) -> bool:
    """Whether it has ended, without reaping it."""
    if process.returncode is not None:
        return True
    fd = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(within_s * 1000))
    finally:
        os.close(fd)


_Job = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]
_jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
_spawner_lock = threading.Lock()
_spawner_pid = 0


def _spawn(command: list[str], environ: dict[str, str], log_fd: int) -> subprocess.Popen[bytes]:
    """Start the child from a thread that lives as long as this process.

    The kernel's death signal follows the thread that started the child, and the caller's thread may
    be one of a pool that ends.
    """
    global _spawner_pid
    with _spawner_lock:
        if _spawner_pid != os.getpid():
            threading.Thread(target=_serve_jobs, name="spawner", daemon=True).start()
            _spawner_pid = os.getpid()
    done: Future[subprocess.Popen[bytes]] = Future()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=environ,
            cwd=_REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    _jobs.put((start, done))
    try:
        return done.result()
    except OSError as exc:
        raise ServerStartError(f"{command[0]} could not be started: {exc}") from exc


def _serve_jobs() -> None:
    while True:
        start, done = _jobs.get()
        try:
            done.set_result(start())
        except OSError as exc:
            done.set_exception(exc)
