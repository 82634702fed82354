"""Child processes of servers: they die with this process and are watched without reaping."""

from __future__ import annotations

import os
import queue
import select
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from orchestrator.environments.errors import ServerStartError

REPOSITORY = Path(__file__).resolve().parents[3]


def base_environment() -> dict[str, str]:
    """What a server gets of this process's environment: where programs and modules are."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SWITCHBACK_UNSANDBOXED")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ.setdefault("PATH", os.defpath)
    return {**environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}


def has_ended(process: subprocess.Popen[bytes], within_s: float = 0.0) -> bool:
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


def spawn(command: list[str], environ: dict[str, str], log_fd: int) -> subprocess.Popen[bytes]:
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
            cwd=REPOSITORY,
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
