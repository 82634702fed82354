"""Child processes: started, watched against their limits, ended with all that they started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.sandbox.limits import Limits

WATCH_S = 0.1


@dataclass(frozen=True)
class Captured:
    output: bytes
    warning: str
    returncode: int


def spawn(
    argv: Sequence[str],
    *,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            cwd=cwd,
            env=dict(env) if env is not None else {"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
            start_new_session=True,
        )
    except OSError as exc:
        raise SandboxError(f"{argv[0]} could not be started: {exc}") from exc


def supervise(
    process: subprocess.Popen[bytes],
    limits: Limits,
    started_at: float,
    watch: Callable[[], str] = lambda: "",
) -> Captured:
    """Read until the command ends or a limit strikes; then kill its whole group and reap it.

    `watch` is asked every `WATCH_S` and tells a limit in words once it is met.
    """
    if process.stdout is None:
        raise SandboxError("no pipe to the command")
    out_fd = process.stdout.fileno()
    os.set_blocking(out_fd, False)
    end_fd = os.pidfd_open(process.pid)
    kept = bytearray()
    n_bytes = 0
    warning = ""
    poll = select.poll()
    poll.register(out_fd, select.POLLIN)
    poll.register(end_fd, select.POLLIN)
    deadline = started_at + limits.wall_s
    watch_at = started_at + WATCH_S
    has_ended = False
    try:
        while not has_ended and not warning:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                warning = f"time limit of {limits.wall_s:g} s"
                break
            ready = {fd for fd, _ in poll.poll(max(1, min(left_s, WATCH_S) * 1000))}
            has_ended = end_fd in ready
            if not has_ended and time.monotonic() >= watch_at:
                warning = watch()
                watch_at = time.monotonic() + WATCH_S
            while out_fd in ready:
                try:
                    chunk = os.read(out_fd, 65536)
                except BlockingIOError:
                    break
                if not chunk:
                    poll.unregister(out_fd)
                    break
                n_bytes += len(chunk)
                # One byte more than the limit tells that something was cut.
                kept += chunk[: max(0, limits.output_bytes + 1 - len(kept))]
                if n_bytes > limits.flood_bytes:
                    warning = f"ended after {limits.flood_bytes} bytes of output"
                    break
    finally:
        os.close(end_fd)
        returncode = end(process)
    return Captured(bytes(kept), warning, returncode)


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill its whole group and reap it."""
    # Before the leader is reaped, so that its number cannot belong to someone else.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    returncode = process.wait()
    if process.stdout is not None:
        process.stdout.close()
    return returncode


def read_all(fd: int) -> bytes:
    """Until every writer has closed its end."""
    return b"".join(iter(lambda: os.read(fd, 65536), b""))


def reported_status(report: bytes) -> int | None:
    """The command's exit status from bubblewrap's report; None if it never started."""
    return _reported(report, "exit-code")


def reported_pid(report: bytes) -> int | None:
    """The sandbox's first process, with which all others end; None if it was not started."""
    return _reported(report, "child-pid")


def kill_first(report: bytes) -> None:
    """Kill the sandbox's first process. Bubblewrap asks the kernel to do so when its own process
    dies, but asks after the command has started: one that is ended at once could live on.
    """
    pid = reported_pid(report)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def waits_for_children(pid: int) -> bool:
    """Whether a sandbox's first process has started the command and waits for its end; by then it
    ends with bubblewrap.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return True  # it has ended, or this kernel does not tell
    return state == "S" and bool(children.strip())


def _reported(report: bytes, name: str) -> int | None:
    for line in report.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get(name), int):
            return int(record[name])
    return None
