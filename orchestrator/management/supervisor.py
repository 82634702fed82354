"""Keeps a few child processes running and ends them with itself.

It owns starting, restarting with back-off, and stopping. What the children are is decided by the
command `up`. Each child leads its own process group and gets SIGTERM from the kernel when the
supervisor dies (Linux). That signal is tied to the thread that starts the child, so `run` belongs
in the main thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

POLL_S = 0.1
STOP_S = 10.0
"""From SIGTERM to SIGKILL, beside what `drain_s` gives: a job gives its lease back at its next
step."""
_STEADY_S = 30.0
_ASK_AGAIN_S = 0.2
_LOG_BYTES = 20_000_000
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ChildSpec:
    name: str
    command: Sequence[str]
    is_wanted: Callable[[], bool] = lambda: True
    """Asked before each start, and again a moment later while the answer is no."""
    fds: tuple[int, ...] = ()
    """Open files that it inherits under their numbers."""


@dataclass
class Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    fails: int = 0
    started_s: float = 0.0
    start_at_s: float = 0.0


@dataclass
class Supervisor:
    specs: Sequence[ChildSpec]
    environ: Mapping[str, str]
    cwd: Path
    log_folder: Path
    say: Callable[[str], None]
    drain_s: float = 0.0
    """How long children may go on with what they do once they are told to stop."""
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.log_folder.mkdir(parents=True, exist_ok=True)
        self.children = [Child(spec) for spec in self.specs]

    def run(self, on_poll: Callable[[], None] = lambda: None) -> None:
        """Returns after `stop` was set and every child has ended."""
        try:
            while not self.stop.wait(POLL_S):
                now_s = time.monotonic()
                for child in self.children:
                    self._tend(child, now_s)
                on_poll()
        finally:
            self._end_all()

    def _tend(self, child: Child, now_s: float) -> None:
        if child.process is None:
            if now_s >= child.start_at_s:
                if child.spec.is_wanted():
                    self._start(child, now_s)
                else:
                    child.start_at_s = now_s + _ASK_AGAIN_S
        elif (code := child.process.poll()) is not None:
            _signal_group(child.process, signal.SIGKILL)  # what it may have left behind
            lived_s = now_s - child.started_s
            child.fails = 1 if lived_s > _STEADY_S else child.fails + 1
            delay_s = restart_delay_s(child.fails)
            child.process, child.start_at_s = None, now_s + delay_s
            self.say(
                f"{child.spec.name} ended ({describe_exit(code)}) after {lived_s:.0f} s, "
                f"starts again in {delay_s:g} s; log: {self.log_path(child.spec.name)}"
            )

    def _start(self, child: Child, now_s: float) -> None:
        path = self.log_path(child.spec.name)
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        with path.open("ab") as log:
            child.process = subprocess.Popen(
                list(child.spec.command),
                cwd=self.cwd,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=child.spec.fds,
                preexec_fn=_die_with(os.getpid()),
            )
        child.started_s = now_s

    def _end_all(self) -> None:
        running = [child.process for child in self.children if child.process is not None]
        for process in running:
            _signal_group(process, signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S + self.drain_s
        for process in running:
            try:
                process.wait(timeout=max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
        for process in running:
            _signal_group(process, signal.SIGKILL)
            process.wait()

    def log_path(self, name: str) -> Path:
        return self.log_folder / f"{name}.log"


def restart_delay_s(fails: int) -> float:
    """Seconds before the start that follows failure number `fails` in a row."""
    return min(30.0, 0.25 * 2.0 ** min(fails - 1, 30))


def describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _die_with(parent_pid: int) -> Callable[[], None] | None:
    """To be run in the child before exec: SIGTERM when the parent dies, exit if it has already."""
    if sys.platform != "linux":
        return None
    # Loaded here, since loading after fork could wait for a lock that nobody holds any more.
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:
            os._exit(1)

    return prepare


def _signal_group(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    try:
        os.killpg(process.pid, signum)
    except ProcessLookupError:
        return  # the whole group has ended
