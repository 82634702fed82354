"""One command in the sandbox."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.environments.errors import SandboxError, SandboxUnavailableError
from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.sandbox.bubblewrap import (
    Descriptors,
    as_nobody,
    command_argv,
    entering,
    prlimit,
    processes_of,
    shell,
    shell_environment,
)
from orchestrator.environments.sandbox.doorway import child_pid, open_doorway
from orchestrator.environments.sandbox.folders import folder_size_bytes
from orchestrator.environments.sandbox.limits import NOBODY, CommandResult, Isolation, Limits
from orchestrator.environments.sandbox.proxy import EgressProxy
from orchestrator.environments.sandbox.supervision import (
    Captured,
    end,
    kill_first,
    read_all,
    reported_status,
    spawn,
    supervise,
)

OWN_PROCESSES = 2
"""Of bubblewrap itself, beside the command's."""
_SPOKEN_SIGNALS = {
    128 + signal.SIGXCPU: "processor time limit of {cpu_s} s",
    128 + signal.SIGXFSZ: "file size limit of {file_mib:g} MiB",
}
"""Exit statuses that only a limit brings."""


@dataclass(frozen=True)
class Sandbox:
    """Runs commands. Safe to use from several threads."""

    isolation: Isolation
    limits: Limits = field(default_factory=Limits)
    egress: EgressProxy | None = None
    """The way to the names that it allows; without one there is no network."""
    shares_network: bool = False
    """Commands use the host's network: weak isolation."""
    readable: tuple[tuple[str, str], ...] = ()
    """Further folders, read-only: path on the host, reachable for nobody, and path inside."""

    def __post_init__(self) -> None:
        if not self.isolation.available:
            raise SandboxUnavailableError(f"{self.isolation.reason}. {self.isolation.hint}.")

    def run(self, command: str, folder: Path) -> CommandResult:
        """Execute `command` with bash in `folder` (a result of `fresh_folder`).

        Blocks for at most `Limits.wall_s` plus the time to kill. `SandboxError` if the command was
        not started.
        """
        group = cgroup.make(
            cgroup.Allowance(
                memory_bytes=self.limits.tree_memory_bytes,
                processes=self.limits.processes + OWN_PROCESSES,
            )
        )
        try:
            if self.isolation.mode == "unsandboxed":
                return self._run_unsandboxed(command, folder, group)
            return self._run_isolated(command, folder, group)
        finally:
            if group is not None:
                group.close()

    def _run_isolated(
        self, command: str, folder: Path, group: cgroup.Group | None
    ) -> CommandResult:
        report_r, report_w = os.pipe()
        gate_r, gate_w = os.pipe() if self.egress is not None else (-1, -1)
        fds = Descriptors(report=report_w, gate=gate_r)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, report_r)
            if gate_w >= 0:
                stack.callback(os.close, gate_w)
            stack.callback(fds.close)
            argv = [
                *entering(group.paths if group else ()),
                *command_argv(
                    self.isolation,
                    self._own_limits(group),
                    folder,
                    fds,
                    command,
                    shares_network=self.shares_network,
                    has_proxy=self.egress is not None,
                    readable=self.readable,
                ),
            ]
            started_at = time.monotonic()
            process = spawn(argv, pass_fds=fds.all())
            fds.close()
            if self.egress is not None:
                stack.enter_context(self._reaching(self.egress, process, report_r, gate_w))
                started_at = time.monotonic()
            watch = functools.partial(self._fullness, folder)
            captured = supervise(process, self.limits, started_at, watch)
            report = read_all(report_r)
            if captured.warning:
                kill_first(report)
                if group is not None:
                    group.kill()
        exit_status = reported_status(report)
        if captured.warning or (exit_status is None and group is not None and group.memory_kills()):
            exit_status = 128 + signal.SIGKILL
        elif exit_status is None:
            said = captured.output.decode(errors="replace").strip()
            raise SandboxError(f"the sandbox did not start: {said or 'no message'}")
        return self._result(captured, exit_status, started_at, group)

    @contextlib.contextmanager
    def _reaching(
        self, egress: EgressProxy, process: subprocess.Popen[bytes], report: int, gate: int
    ) -> Iterator[None]:
        """Opens the proxy's door inside, then lets the command start."""
        pid = child_pid(report)
        if pid is None:  # it ended before; its own words are the output
            yield
            return
        try:
            door = open_doorway(pid, NOBODY if self.isolation.drops_root else None)
        except OSError as exc:
            # Before the gate is closed, which would open it.
            end(process)
            raise SandboxError(f"the egress proxy could not be reached from inside: {exc}") from exc
        with egress.serving(door):
            os.write(gate, b".")
            yield

    def _run_unsandboxed(
        self, command: str, folder: Path, group: cgroup.Group | None
    ) -> CommandResult:
        dropping = as_nobody() if self.isolation.drops_root else []
        # Without a namespace the kernel counts all processes of the user, dead ones that nobody has
        # collected included: the limit is for what comes on top.
        user = NOBODY if dropping else os.getuid()
        limits = replace(self.limits, processes=self.limits.processes + processes_of(user))
        argv = [*entering(group.paths if group else ()), *dropping]
        argv += [*prlimit(limits), *shell(command)]
        started_at = time.monotonic()
        process = spawn(argv, cwd=folder, env=shell_environment(home=str(folder)))
        watch = functools.partial(self._fullness, folder)
        captured = supervise(process, self.limits, started_at, watch)
        if group is not None:
            # What left the process group is in the control group still.
            group.kill()
        status = captured.returncode
        exit_status = 128 - status if status < 0 else status
        return self._result(captured, exit_status, started_at, group)

    def _fullness(self, folder: Path) -> str:
        """While the command runs: a disk is filled faster than it ends."""
        limit = self.limits.folder_bytes
        is_full = folder_size_bytes(folder, enough_bytes=limit) > limit
        return f"files of more than {limit / 2**20:g} MiB" if is_full else ""

    def _own_limits(self, group: cgroup.Group | None) -> Limits:
        """Limits per process and user. Where a group counts processes, it shall be met first: it
        remembers that it was.
        """
        if group is None or "pids" not in group.folders:
            return self.limits
        return replace(self.limits, processes=self.limits.processes + OWN_PROCESSES + 8)

    def _result(
        self, captured: Captured, exit_status: int, started_at: float, group: cgroup.Group | None
    ) -> CommandResult:
        limit = self.limits.output_bytes
        struck = [captured.warning] if captured.warning else []
        if text := _SPOKEN_SIGNALS.get(exit_status):
            file_mib = self.limits.file_bytes / 2**20
            struck.append(text.format(cpu_s=self.limits.cpu_s, file_mib=file_mib))
        if group is not None:
            struck += group.struck(own_processes=OWN_PROCESSES)
        return CommandResult(
            output=captured.output[:limit],
            exit_status=exit_status,
            is_truncated=len(captured.output) > limit,
            warning="; ".join(struck),
            duration_s=time.monotonic() - started_at,
        )
