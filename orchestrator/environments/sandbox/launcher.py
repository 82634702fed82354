"""Starting a server in the sandbox and staying with it until it ends. See `service`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.sandbox.bubblewrap import (
    as_nobody,
    closing,
    entering,
    opening,
    processes_of,
    tmpfs,
)
from orchestrator.environments.sandbox.command import OWN_PROCESSES
from orchestrator.environments.sandbox.detection import detect
from orchestrator.environments.sandbox.limits import NOBODY, Isolation
from orchestrator.environments.sandbox.service import (
    BACKLOG,
    HOME,
    LOG_LIMIT_BYTES,
    ServiceSpec,
)
from orchestrator.environments.sandbox.staging import Bind, staged
from orchestrator.environments.sandbox.supervision import reported_status

SHARED_MEMORY_BYTES = 64 * 2**20
NAME_FILES = ("/etc/resolv.conf", "/etc/hosts")
"""Shown only to a server with an open network."""
COMMON_FILES = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/nsswitch.conf", "/etc/mime.types")
PASSWD = "nobody:x:65534:65534:nobody:/tmp/home:/usr/sbin/nologin\n"
GROUP = "nogroup:x:65534:\n"
HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def launch(spec: ServiceSpec, *, socket_path: Path, decisions: Path | None) -> int:
    """Serve until the server ends or this process gets SIGTERM; the server's exit status."""
    isolation = detect()
    if not isolation.available:
        say(f"{isolation.reason}. {isolation.hint}.")
        return 2
    try:
        # First of all: it needs a process without further threads.
        staging = (
            staged(spec.readable)
            if isolation.drops_root
            else contextlib.nullcontext(list(spec.readable))
        )
        with staging as binds, _listening(socket_path) as listener:
            return asyncio.run(_run(spec, isolation, binds, listener, decisions))
    except SandboxError as exc:
        say(str(exc))
        return 2


def say(text: str) -> None:
    """A line in the server's log that is ours."""
    print(f"[sandbox] {text}", file=sys.stderr, flush=True)


def _binds(
    spec: ServiceSpec, isolation: Isolation
) -> contextlib.AbstractContextManager[Sequence[Bind]]:
    if isolation.drops_root:
        return staged(spec.readable)
    return contextlib.nullcontext(spec.readable)


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        path.unlink(missing_ok=True)
        # Nobody but this user may connect, from the first moment on.
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        yield listener


async def _run(
    spec: ServiceSpec,
    isolation: Isolation,
    binds: Sequence[Bind],
    listener: socket.socket,
    decisions: Path | None,
) -> int:
    resources = spec.resources
    group = cgroup.make(
        cgroup.Allowance(
            memory_bytes=resources.memory_mb * 2**20,
            processes=resources.processes + OWN_PROCESSES,
            cpus=resources.cpus,
        )
    )
    try:
        report_r, report_w = os.pipe()
        inherited = [listener.fileno(), report_w]
        if isolation.mode == "unsandboxed":
            say(isolation.reason)
            argv = _unsandboxed(spec, isolation, listener.fileno(), group)
        else:
            inside = [part.replace("{fd}", str(listener.fileno())) for part in spec.command]
            argv = [
                *entering(group.paths if group else ()),
                *opening(isolation, report_w, shares_network=resources.network.mode == "open"),
                *_folders(spec, isolation, binds, inherited),
                *closing(_environment(spec), [*_limits(resources, group), *inside]),
            ]
        process = _spawn(argv, spec, isolation, inherited)
        for fd in inherited:
            if fd != listener.fileno():
                os.close(fd)
        return await _until_ended(process, report_r, group, isolation)
    finally:
        if group is not None:
            group.kill()
            group.close()


def _folders(
    spec: ServiceSpec, isolation: Isolation, binds: Sequence[Bind], inherited: list[int]
) -> list[str]:
    """Options for what is visible beside the system. Adds the descriptors that they read."""
    disk_bytes = spec.resources.disk_mb * 2**20
    argv = tmpfs(isolation, "/tmp", disk_bytes)
    argv += ["--dir", HOME]
    argv += tmpfs(isolation, "/dev/shm", min(SHARED_MEMORY_BYTES, disk_bytes))
    is_open = spec.resources.network.mode == "open"
    for path, content in (("/etc/passwd", PASSWD), ("/etc/group", GROUP), ("/etc/hosts", HOSTS)):
        if not (is_open and path in NAME_FILES):
            fd = os.memfd_create("content")
            os.write(fd, content.encode())
            os.lseek(fd, 0, os.SEEK_SET)
            inherited.append(fd)
            argv += ["--ro-bind-data", str(fd), path]
    for path in (*COMMON_FILES, *(NAME_FILES if is_open else ())):
        argv += ["--ro-bind-try", os.path.realpath(path), path]
    for source, inside in binds:
        argv += ["--ro-bind", source, inside]
    for source, inside in spec.writable:
        argv += ["--bind", source, inside]
    return [*argv, "--chdir", spec.folder]


def _environment(spec: ServiceSpec) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": HOME,
        "USER": "nobody",
        "TMPDIR": "/tmp",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **spec.env,
    }


def _limits(resources: Resources, group: cgroup.Group | None, besides: int = 0) -> list[str]:
    """Limits per process, of what no control group limits.

    Of the memory that a process may write, not of its address space: runtimes reserve far more
    than they use.
    """
    argv = ["/usr/bin/prlimit", "--core=0", "--nofile=4096"]
    argv += [f"--fsize={resources.disk_mb * 2**20}"]
    controlled = group.folders if group is not None else {}
    if "memory" not in controlled:
        argv += [f"--data={resources.memory_mb * 2**20}"]
    # A group that counts shall be met first: it remembers that it was.
    spare = OWN_PROCESSES + 8 if "pids" in controlled else 0
    return [*argv, f"--nproc={resources.processes + spare + besides}", "--"]


def _unsandboxed(
    spec: ServiceSpec, isolation: Isolation, fd: int, group: cgroup.Group | None
) -> list[str]:
    """The command with limits alone. Paths inside are taken back to where they are on the host."""
    dropping = as_nobody() if isolation.drops_root else []
    besides = processes_of(NOBODY if dropping else os.getuid())
    return [
        *entering(group.paths if group else ()),
        *dropping,
        *_limits(spec.resources, group, besides),
        *[part.replace("{fd}", str(fd)) for part in spec.command],
    ]


def _spawn(
    argv: Sequence[str], spec: ServiceSpec, isolation: Isolation, inherited: Sequence[int]
) -> subprocess.Popen[bytes]:
    # From the main thread, which lives as long as the launcher: the kernel's death signal, by
    # which bubblewrap ends with us, follows the thread.
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    is_bare = isolation.mode == "unsandboxed"
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            env={**_environment(spec), **spec.env} if is_bare else env,
            start_new_session=True,
        )
    except OSError as exc:
        raise SandboxError(f"{argv[0]} could not be started: {exc}") from exc


async def _until_ended(
    process: subprocess.Popen[bytes],
    report_r: int,
    group: cgroup.Group | None,
    isolation: Isolation,
) -> int:
    """Copy its output, wait for its end or for a signal, end the tree, tell how it ended."""
    loop = asyncio.get_running_loop()
    ended, asked = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    end_fd = os.pidfd_open(process.pid)
    loop.add_reader(end_fd, ended.set)
    assert process.stdout is not None
    report = bytearray()
    pumps = [
        asyncio.create_task(_pump(process.stdout.fileno(), _Log())),
        asyncio.create_task(_pump(report_r, report.extend)),
    ]
    try:
        waits = [asyncio.create_task(event.wait()) for event in (ended, asked)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not ended.is_set():
            _end(process, bytes(report))
            await ended.wait()
    finally:
        loop.remove_reader(end_fd)
        os.close(end_fd)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if group is not None:
            group.kill()
        # What it printed last. Bounded: a process that got away would hold the pipe open.
        await asyncio.wait(pumps, timeout=1.0)
        for pump in pumps:
            pump.cancel()
        process.wait()
    status = 128 - process.returncode if process.returncode < 0 else process.returncode
    if asked.is_set():
        return 0
    if isolation.mode == "bubblewrap" and (told := reported_status(bytes(report))) is not None:
        status = told
    struck = group.struck(own_processes=OWN_PROCESSES) if group is not None else []
    say(f"the server ended with status {status}" + (f": {'; '.join(struck)}" if struck else ""))
    return status


def _end(process: subprocess.Popen[bytes], report: bytes) -> None:
    """Kill the first process of the namespace, with which all others go; bubblewrap then ends."""
    for line in report.splitlines():
        with contextlib.suppress(ValueError, ProcessLookupError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("child-pid"), int):
                os.kill(record["child-pid"], signal.SIGKILL)
                return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class _Log:
    """Copies to this process's standard output, up to a limit."""

    def __init__(self) -> None:
        self._left = LOG_LIMIT_BYTES

    def __call__(self, chunk: bytes) -> None:
        if self._left <= 0:
            return
        os.write(1, chunk[: self._left])
        self._left -= len(chunk)
        if self._left <= 0:
            say(f"the log is cut after {LOG_LIMIT_BYTES // 2**20} MiB")


async def _pump(fd: int, take: Callable[[bytes], object]) -> None:
    """Read until the end and hand over each piece."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    done = asyncio.Event()

    def read() -> None:
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return
        if chunk:
            take(chunk)
        else:
            loop.remove_reader(fd)
            done.set()

    loop.add_reader(fd, read)
    try:
        await done.wait()
    finally:
        loop.remove_reader(fd)
