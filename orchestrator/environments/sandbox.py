"""Running an agent's command apart from everything else on the machine.

With bubblewrap a command sees a read-only system, an empty `/tmp`, its task's folder at `/task`,
and nothing more: no network, no host files, no environment variables, no other process, user
nobody without capabilities. Limits on processor time, memory, processes and file size are set
inside the user namespace, so that they count per command and not over all episodes; the wall
clock, the kill of the whole tree and the cap on output are done here.

When started as root, the command runs as uid 65534 on the host as well (`setpriv`), so that an
escape would meet an ordinary user's rights; only where the kernel gives user namespaces to root
alone does it stay root's on the host. Started by another user, files in the task's folder belong to
that user.

Whether it works is found out by trying: user namespaces can be off in containers or by sysctl even
where the binary is installed. Without isolation nothing runs, unless the operator has opted out by
`SWITCHBACK_UNSANDBOXED=1`; then only the limits apply and the result says so (`Isolation.mode`).

A failure of the sandbox itself is an error (`SandboxError`), never the output of a command:
bubblewrap reports on a descriptor of its own whether the command was started.

Measured on two cores: about 12 ms for `true`, nearly all of it namespaces and mounts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import secrets
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from orchestrator.environments.errors import SandboxError, SandboxUnavailableError

NOBODY = 65534
OPT_OUT_VARIABLE = "SWITCHBACK_UNSANDBOXED"
TASK_FOLDER = "/task"
"""Where a command finds its files, and its working directory."""

_INSTALL_HINT = (
    "Install bubblewrap (Debian, Ubuntu: `apt-get install bubblewrap`; Fedora: "
    "`dnf install bubblewrap`) and allow user namespaces (sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container, its security options)"
)
_OPT_OUT_HINT = (
    f"or set {OPT_OUT_VARIABLE}=1 to run commands of agents without isolation, knowing that they "
    "then can read your files and use your network"
)


@dataclass(frozen=True)
class Limits:
    """Bounds of one command. Named in the observation when they strike."""

    wall_s: float = 5.0
    cpu_s: int = 5
    memory_bytes: int = 128 * 2**20
    """Address space of each process; 24 processes of this size fit a machine of 4 GiB."""
    processes: int = 24
    file_bytes: int = 8 * 2**20
    folder_bytes: int = 32 * 2**20
    """All files of the task's folder together, measured after each command."""
    tmp_bytes: int = 16 * 2**20
    output_bytes: int = 4096
    flood_bytes: int = 2**20
    """A command that printed this much is ended: nobody will read it."""


@dataclass(frozen=True)
class Isolation:
    """What this machine offers. `available` is false where commands must not run."""

    available: bool
    reason: str
    hint: str = ""
    mode: Literal["bubblewrap", "unsandboxed", "none"] = "none"
    options: tuple[str, ...] = ()
    """Further bubblewrap options that this machine's version and kernel take."""
    has_proc: bool = True
    drops_root: bool = False
    """Started by root, commands run as another user on the host too."""


@dataclass(frozen=True)
class CommandResult:
    """One command's end."""

    output: bytes
    """Standard output and error as they came, at most `Limits.output_bytes`."""
    exit_status: int
    """As a shell reports it: 128 + signal for a killed command; 137 when a limit ended it."""
    is_truncated: bool
    warning: str
    """The limit that ended it, in words; empty if none did."""
    duration_s: float


@dataclass(frozen=True)
class Sandbox:
    """Runs commands. Safe to use from several threads."""

    isolation: Isolation
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.isolation.available:
            raise SandboxUnavailableError(f"{self.isolation.reason}. {self.isolation.hint}.")

    def run(self, command: str, folder: Path) -> CommandResult:
        """Execute `command` with bash in `folder` (a result of `fresh_folder`).

        Blocks for at most `Limits.wall_s` plus the time to kill. `SandboxError` if the command was
        not started.
        """
        if self.isolation.mode == "unsandboxed":
            return self._run_unsandboxed(command, folder)
        report_r, report_w = os.pipe()
        try:
            argv = _bwrap_argv(self.isolation, self.limits, folder, report_w, command)
            started_at = time.monotonic()
            process = _spawn(argv, pass_fds=(report_w,))
            os.close(report_w)
            report_w = -1
            captured = _supervise(process, self.limits, started_at)
            with os.fdopen(report_r, "rb") as pipe:
                report_r = -1
                report = pipe.read()
        finally:
            for fd in (report_r, report_w):
                if fd >= 0:
                    os.close(fd)
        exit_status = _reported_status(report)
        if captured.warning:
            exit_status = 128 + signal.SIGKILL
        elif exit_status is None:
            said = captured.output.decode(errors="replace").strip()
            raise SandboxError(f"the sandbox did not start: {said or 'no message'}")
        return self._result(captured, exit_status, started_at)

    def _run_unsandboxed(self, command: str, folder: Path) -> CommandResult:
        as_nobody = _as_nobody() if self.isolation.drops_root else []
        # Without a namespace the kernel counts all processes of the user, dead ones that nobody has
        # collected included: the limit is for what comes on top.
        user = NOBODY if as_nobody else os.getuid()
        limits = replace(self.limits, processes=self.limits.processes + _processes_of(user))
        argv = [*as_nobody, *_prlimit(limits), *_shell(command)]
        started_at = time.monotonic()
        process = _spawn(argv, cwd=folder, env=_environment(home=str(folder)))
        captured = _supervise(process, self.limits, started_at)
        status = captured.returncode
        exit_status = 128 - status if status < 0 else status
        return self._result(captured, exit_status, started_at)

    def _result(self, captured: _Captured, exit_status: int, started_at: float) -> CommandResult:
        limit = self.limits.output_bytes
        return CommandResult(
            output=captured.output[:limit],
            exit_status=exit_status,
            is_truncated=len(captured.output) > limit,
            warning=captured.warning,
            duration_s=time.monotonic() - started_at,
        )


# --- folders -------------------------------------------------------------------------------------

_ROOT_PREFIX = "switchback-terminal-"


def private_root(base: Path | None = None) -> Path:
    """A new folder for the folders of episodes, named after this process; the caller removes it.

    As root it must be reachable for nobody, which a path below a private home is not; hence the
    first of `base`, the temporary folder, `/tmp` and `/var/tmp` that is. Removes what processes
    left there that were killed.
    """
    candidates = [Path(p) for p in (base, tempfile.gettempdir(), "/tmp", "/var/tmp") if p]
    for candidate in candidates:
        if os.geteuid() != 0 or _is_open_to_others(candidate):
            _sweep(candidate)
            root = candidate / f"{_ROOT_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
            root.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700)
            return root
    raise SandboxError(
        "no folder that user nobody can reach; set TMPDIR to one whose parents are open (mode o+x)"
    )


def fresh_folder(root: Path, files: Mapping[str, str], isolation: Isolation) -> Path:
    """A private folder below `root` filled with `files`, owned by whom commands run as."""
    folder = root / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    for name, content in files.items():
        path = folder / name
        if path.parent != folder or name in (".", ".."):
            raise ValueError(f"file name {name!r} leaves the task's folder")
        path.write_text(content, encoding="utf-8")
    if isolation.drops_root:
        for path in (*folder.iterdir(), folder):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return folder


def folder_size_bytes(folder: Path) -> int:
    """Allocated bytes of all files below, links not followed."""
    total = 0
    for path, _, names in os.walk(folder, onerror=None):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def remove_folder(folder: Path) -> None:
    """Delete whatever an agent made of it. Safe to call twice."""

    def make_writable(function: object, path: str, _: object) -> None:
        # A folder without permissions stops its own owner; root does not come here.
        parent = os.path.dirname(path)
        for locked in (parent, path):
            if os.path.isdir(locked) and not os.path.islink(locked):
                os.chmod(locked, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=make_writable)


def _is_open_to_others(path: Path) -> bool:
    try:
        resolved = path.resolve(strict=True)
        return all(p.stat().st_mode & stat.S_IXOTH for p in (resolved, *resolved.parents))
    except OSError:
        return False


def _sweep(base: Path) -> None:
    for left in base.glob(f"{_ROOT_PREFIX}*"):
        pid = left.name.removeprefix(_ROOT_PREFIX).partition("-")[0]
        try:
            is_mine = left.lstat().st_uid == os.geteuid()
        except FileNotFoundError:
            continue
        if is_mine and pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)


# --- detection -----------------------------------------------------------------------------------


def detect(environ: Mapping[str, str] | None = None) -> Isolation:
    """What isolation works here, by a real try (about 20 ms, remembered for the process).

    The opt-out counts only where isolation does not work.
    """
    isolation = _try_bubblewrap()
    environ = os.environ if environ is None else environ
    if isolation.available or environ.get(OPT_OUT_VARIABLE) != "1":
        return isolation
    return Isolation(
        available=True,
        reason=f"commands run WITHOUT isolation, as {OPT_OUT_VARIABLE}=1 asks: {isolation.reason}",
        hint=_INSTALL_HINT,
        mode="unsandboxed",
        drops_root=os.geteuid() == 0 and shutil.which("setpriv") is not None,
    )


@functools.cache
def _try_bubblewrap() -> Isolation:
    if platform.system() != "Linux":
        return _refused(f"agents' commands need Linux, this is {platform.system()}")
    is_root = os.geteuid() == 0
    wanted = ["bwrap", "prlimit", "bash"] + (["setpriv"] if is_root else [])
    missing = [name for name in wanted if shutil.which(name) is None]
    if missing:
        return _refused(f"{' and '.join(missing)} not found on the PATH")
    said = ""
    for isolation in _variants(is_root):
        root = private_root()
        try:
            folder = fresh_folder(root, {"probe.txt": "probe\n"}, isolation)
            probe = 'test "$(id -u)" = 65534 && echo more >> probe.txt && cat probe.txt'
            result = Sandbox(isolation).run(probe, folder)
        except (SandboxError, OSError) as exc:
            said = said or str(exc)
            continue
        finally:
            remove_folder(root)
        if result.output == b"probe\nmore\n":
            return isolation
        said = said or result.output.decode(errors="replace").strip()
    return _refused(f"bubblewrap is installed and does not work here ({said})")


def _variants(is_root: bool) -> Iterator[Isolation]:
    """Strictest first. Bubblewrap before 0.8 has no --disable-userns, containers may forbid /proc,
    kernels may refuse user namespaces to all but root.
    """
    for drops_root in (True, False) if is_root else (False,):
        for options, has_proc in ((("--disable-userns",), True), ((), True), ((), False)):
            yield Isolation(
                available=True,
                reason="bubblewrap works",
                mode="bubblewrap",
                options=options,
                has_proc=has_proc,
                drops_root=drops_root,
            )


def _refused(reason: str) -> Isolation:
    return Isolation(available=False, reason=reason, hint=f"{_INSTALL_HINT}, {_OPT_OUT_HINT}")


# --- command lines -------------------------------------------------------------------------------


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def _prlimit(limits: Limits) -> list[str]:
    return [
        "/usr/bin/prlimit",
        f"--cpu={limits.cpu_s}",
        f"--as={limits.memory_bytes}",
        f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}",
        "--nofile=128",
        "--core=0",
        "--",
    ]


def _processes_of(uid: int) -> int:
    """Threads of a user on this machine, as the process limit counts them."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if entry.stat().st_uid == uid:
                    count += max(1, len(os.listdir(f"/proc/{entry.name}/task")))
    return count


def _shell(command: str) -> list[str]:
    return ["/bin/bash", "--noprofile", "--norc", "-c", command]


def _environment(home: str) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": home,
        "PWD": home,
        "TMPDIR": "/tmp",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }


@functools.cache
def _hidden_folders() -> tuple[str, ...]:
    """Parts of `/usr` that hold what people installed, this product perhaps included."""
    return tuple(name for name in ("/usr/local", "/usr/src") if os.path.isdir(name))


@functools.cache
def _system_binds() -> tuple[str, ...]:
    """The read-only system: `/usr` and what distributions keep beside it."""
    options = ["--ro-bind", "/usr", "/usr"]
    for hidden in _hidden_folders():
        options += ["--tmpfs", hidden]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(name):
            options += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            options += ["--ro-bind", name, name]
    for name in ("/etc/alternatives", "/etc/ld.so.cache"):
        # awk is a link through /etc/alternatives on Debian.
        options += ["--ro-bind-try", name, name]
    return tuple(options)


def _bwrap_argv(
    isolation: Isolation, limits: Limits, folder: Path, report_fd: int, command: str
) -> list[str]:
    # The kernel prefers sandboxes to the worker when memory runs out.
    argv = ["choom", "-n", "1000", "--"] if shutil.which("choom") else []
    if isolation.drops_root:
        argv += _as_nobody()
    argv += ["bwrap", "--json-status-fd", str(report_fd)]
    argv += ["--unshare-all", "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    argv += [*isolation.options, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--hostname", "sandbox", *_system_binds()]
    if isolation.has_proc:
        argv += ["--proc", "/proc"]
    argv += ["--dev", "/dev"]
    if isolation.options:
        argv += ["--size", str(limits.tmp_bytes)]
    argv += ["--tmpfs", "/tmp", "--bind", str(folder), TASK_FOLDER, "--chdir", TASK_FOLDER]
    # Memory-backed mounts without a size, closed once everything is in place.
    for name in ("/", "/dev", *_hidden_folders()):
        argv += ["--remount-ro", name]
    argv += ["--clearenv"]
    for name, value in _environment(home=TASK_FOLDER).items():
        argv += ["--setenv", name, value]
    return [*argv, "--", *_prlimit(limits), *_shell(command)]


# --- processes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Captured:
    output: bytes
    warning: str
    returncode: int


def _spawn(
    argv: Sequence[str],
    *,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            cwd=cwd,
            env=dict(env) if env is not None else {"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
            start_new_session=True,
        )
    except OSError as exc:
        raise SandboxError(f"{argv[0]} could not be started: {exc}") from exc


def _supervise(process: subprocess.Popen[bytes], limits: Limits, started_at: float) -> _Captured:
    """Read until the command ends or a limit strikes; then kill its whole group and reap it."""
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
    has_ended = False
    try:
        while not has_ended and not warning:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                warning = f"time limit of {limits.wall_s:g} s"
                break
            ready = {fd for fd, _ in poll.poll(max(1, left_s * 1000))}
            has_ended = end_fd in ready
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
        # Before the leader is reaped, so that its number cannot belong to someone else.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        returncode = process.wait()
        process.stdout.close()
    return _Captured(bytes(kept), warning, returncode)


def _reported_status(report: bytes) -> int | None:
    """The command's exit status from bubblewrap's report; None if it never started."""
    for line in report.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("exit-code"), int):
            return int(record["exit-code"])
    return None
