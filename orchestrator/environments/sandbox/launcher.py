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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.sandbox.bubblewrap import Descriptors
from orchestrator.environments.sandbox.command import OWN_PROCESSES
from orchestrator.environments.sandbox.detection import detect
from orchestrator.environments.sandbox.doorway import child_pid, open_doorway
from orchestrator.environments.sandbox.inside import isolated_argv, unsandboxed_argv
from orchestrator.environments.sandbox.limits import NOBODY, Isolation
from orchestrator.environments.sandbox.policy import Policy
from orchestrator.environments.sandbox.proxy import EgressProxy
from orchestrator.environments.sandbox.service import (
    BACKLOG,
    END_MARK,
    LOG_LIMIT_BYTES,
    ServiceSpec,
)
from orchestrator.environments.sandbox.staging import Bind, staged
from orchestrator.environments.sandbox.supervision import (
    end,
    kill_first,
    reported_pid,
    reported_status,
    spawn,
    waits_for_children,
)

ARMING_S = 2.0


def launch(spec: ServiceSpec, *, socket_path: Path, decisions: Path | None) -> int:
    """Serve until the server ends or this process gets SIGTERM; the server's exit status."""
    isolation = detect()
    if not isolation.available:
        say(f"{isolation.reason}. {isolation.hint}.")
        return 2
    try:
        # First of all: it needs a process without further threads.
        with _binds(spec, isolation) as binds, _listening(socket_path) as listener:
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
    if isolation.drops_root and isolation.mode == "bubblewrap":
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
        with contextlib.ExitStack() as stack:
            return await _serve(spec, isolation, binds, listener, group, decisions, stack)
    finally:
        if group is not None:
            group.kill()
            group.close()


async def _serve(
    spec: ServiceSpec,
    isolation: Isolation,
    binds: Sequence[Bind],
    listener: socket.socket,
    group: cgroup.Group | None,
    decisions: Path | None,
    stack: contextlib.ExitStack,
) -> int:
    is_isolated = isolation.mode == "bubblewrap"
    has_proxy = is_isolated and spec.resources.network.mode == "allow-list"
    report_r, report_w = os.pipe()
    gate_r, gate_w = os.pipe() if has_proxy else (-1, -1)
    fds = Descriptors(report=report_w, gate=gate_r)
    fd = listener.fileno()
    # From the main thread, which lives as long as the launcher: the kernel's death signal, by
    # which bubblewrap ends with us, follows the thread.
    if is_isolated:
        argv = isolated_argv(spec, isolation, binds, fd, group, fds, has_proxy=has_proxy)
        process = spawn(argv, pass_fds=[fd, *fds.all()], stdin=subprocess.PIPE)
    else:
        say(isolation.reason)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchback-home-")))
        argv, env, folder = unsandboxed_argv(spec, isolation, home, fd, group)
        process = spawn(argv, pass_fds=[fd], env=env, cwd=folder)
    fds.close()
    report = bytearray()
    if is_isolated:
        pid = await asyncio.to_thread(child_pid, report_r)
        if pid is not None:
            report += json.dumps({"child-pid": pid}).encode() + b"\n"
            if has_proxy:
                await _open_door(spec, isolation, pid, process, decisions, stack)
                os.write(gate_w, b".")
                os.close(gate_w)
            await _release(process, pid)
    return await _until_ended(process, report_r, report, group, isolation)


async def _open_door(
    spec: ServiceSpec,
    isolation: Isolation,
    pid: int,
    process: subprocess.Popen[bytes],
    decisions: Path | None,
    stack: contextlib.ExitStack,
) -> None:
    """Start the proxy for as long as `stack` is open."""
    try:
        door = await asyncio.to_thread(open_doorway, pid, NOBODY if isolation.drops_root else None)
    except OSError as exc:
        end(process)
        raise SandboxError(f"the egress proxy could not be reached from inside: {exc}") from exc
    proxy = stack.enter_context(
        EgressProxy(Policy(spec.resources.network.allowed_hosts), decisions)
    )
    stack.enter_context(proxy.serving(door))


async def _release(process: subprocess.Popen[bytes], pid: int) -> None:
    """Let the server start, once it is sure to end with this process however that ends."""
    deadline = time.monotonic() + ARMING_S
    while not waits_for_children(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.002)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"\n")
        process.stdin.close()


async def _until_ended(
    process: subprocess.Popen[bytes],
    report_r: int,
    report: bytearray,
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
        process.wait()
        if group is not None:
            group.kill()
        # What it printed last. Bounded: a process that got away would hold the pipe open.
        await asyncio.wait(pumps, timeout=1.0)
        for pump in pumps:
            pump.cancel()
    status = 128 - process.returncode if process.returncode < 0 else process.returncode
    if asked.is_set():
        return 0
    if isolation.mode == "bubblewrap" and (told := reported_status(bytes(report))) is not None:
        status = told
    struck = group.struck(own_processes=OWN_PROCESSES) if group is not None else []
    limits = f": {'; '.join(struck)}" if struck else ""
    # On a line of its own, whatever the server left unfinished.
    print(f"\n{END_MARK}with status {status}{limits}", file=sys.stderr, flush=True)
    return status


def _end(process: subprocess.Popen[bytes], report: bytes) -> None:
    """Kill the first process of the namespace, with which all others go; bubblewrap then ends."""
    if reported_pid(report) is not None:
        kill_first(report)
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
