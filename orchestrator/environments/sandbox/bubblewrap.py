"""Command lines of bubblewrap: what the inside sees."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.environments.sandbox.doorway import VARIABLES
from orchestrator.environments.sandbox.limits import NOBODY, TASK_FOLDER, Isolation, Limits
from orchestrator.environments.sandbox.seccomp import program_fd

HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
_ENTER = (
    "IFS='\n'; for group in $1; do echo 0 > \"$group/cgroup.procs\" || exit 125; done; "
    'echo 1000 > /proc/self/oom_score_adj; shift; exec "$@"'
)
"""Joins control groups and tells the kernel to prefer this to the worker when memory runs out.

A shell, so that it happens before anything can fork; it costs less than a millisecond.
"""


def entering(groups: Iterable[Path]) -> list[str]:
    """To be put in front of a command line."""
    return ["/bin/sh", "-c", _ENTER, "enter", "\n".join(map(str, groups))]


_HOLD = 'read -r _ || exit 125; exec "$@" < /dev/null'


def holding(command: Sequence[str]) -> list[str]:
    """The command, to start when a line comes from standard input, and not if that ends before."""
    return ["/bin/sh", "-c", _HOLD, "hold", *command]


def as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def prlimit(limits: Limits) -> list[str]:
    return [
        "/usr/bin/prlimit",
        # The soft limit's signal says which limit it was; at the hard one the kernel kills.
        f"--cpu={limits.cpu_s}:{limits.cpu_s + 1}",
        f"--as={limits.memory_bytes}",
        f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}",
        "--nofile=128",
        "--core=0",
        "--",
    ]


def processes_of(uid: int) -> int:
    """Threads of a user on this machine, as the process limit counts them."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if entry.stat().st_uid == uid:
                    count += max(1, len(os.listdir(f"/proc/{entry.name}/task")))
    return count


def shell(command: str) -> list[str]:
    return ["/bin/bash", "--noprofile", "--norc", "-c", command]


def shell_environment(home: str) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": home,
        "PWD": home,
        "TMPDIR": "/tmp",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }


@functools.cache
def hidden_folders() -> tuple[str, ...]:
    """Parts of `/usr` that hold what people installed, this product perhaps included."""
    return tuple(name for name in ("/usr/local", "/usr/src") if os.path.isdir(name))


@functools.cache
def _system_binds() -> tuple[str, ...]:
    """The read-only system: `/usr` and what distributions keep beside it."""
    options = ["--ro-bind", "/usr", "/usr"]
    for hidden in hidden_folders():
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


@dataclass
class Descriptors:
    """What bubblewrap inherits beside the standard ones. Closed here once it has started."""

    report: int
    """It writes its report there."""
    gate: int = -1
    """It waits there for a byte before it starts the command."""
    others: list[int] = field(default_factory=list)
    """Opened for it here."""

    def all(self) -> list[int]:
        return [fd for fd in (self.report, self.gate, *self.others) if fd >= 0]

    def close(self) -> None:
        for fd in self.all():
            os.close(fd)
        self.report, self.gate, self.others = -1, -1, []

    def content(self, text: str) -> str:
        """A descriptor to read `text` from."""
        fd = os.memfd_create("content")
        self.others.append(fd)
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(os.fsencode(text))
        os.lseek(fd, 0, os.SEEK_SET)
        return str(fd)


def bwrap(
    isolation: Isolation, fds: Descriptors, options: Sequence[str], command: Sequence[str]
) -> list[str]:
    """The command line. Options are read from a descriptor: a command line can be seen by everyone
    on the host and by the inside, and options hold the host's paths and the values of variables.
    """
    argv = as_nobody() if isolation.drops_root else []
    return [*argv, "bwrap", "--args", fds.content("\0".join(options) + "\0"), "--", *command]


def opening(isolation: Isolation, fds: Descriptors, *, shares_network: bool = False) -> list[str]:
    """The first options, up to the read-only system, `/proc` and `/dev`."""
    argv = ["--json-status-fd", str(fds.report)]
    argv += ["--block-fd", str(fds.gate)] if fds.gate >= 0 else []
    if isolation.has_filter:
        fds.others.append(program_fd())
        argv += ["--seccomp", str(fds.others[-1])]
    argv += ["--unshare-all", "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    argv += ["--share-net"] if shares_network else []
    argv += [*isolation.options, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--hostname", "sandbox", *_system_binds()]
    argv += ["--proc", "/proc"] if isolation.has_proc else []
    return [*argv, "--dev", "/dev"]


def certificates() -> list[str]:
    """What programs need to check who answers them."""
    argv: list[str] = []
    for path in ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/ssl/openssl.cnf"):
        argv += ["--ro-bind-try", os.path.realpath(path), path]
    return argv


def names(fds: Descriptors, *, shares_network: bool) -> list[str]:
    """The files that name resolution reads: the host's, or one that knows the sandbox alone."""
    if not shares_network:
        return ["--ro-bind-data", fds.content(HOSTS), "/etc/hosts"]
    argv: list[str] = []
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"):
        argv += ["--ro-bind-try", os.path.realpath(path), path]
    return argv


def tmpfs(isolation: Isolation, path: str, size_bytes: int) -> list[str]:
    """A private folder in memory. Bubblewrap before 0.8 knows no size."""
    size = ["--size", str(size_bytes)] if isolation.options else []
    return [*size, "--tmpfs", path]


def closing(env: Mapping[str, str]) -> list[str]:
    """The last options."""
    argv: list[str] = []
    # Memory-backed mounts without a size, closed once everything is in place.
    for name in ("/", "/dev", *hidden_folders()):
        argv += ["--remount-ro", name]
    argv += ["--clearenv"]
    for name, value in env.items():
        argv += ["--setenv", name, value]
    return argv


def command_argv(
    isolation: Isolation,
    limits: Limits,
    folder: Path,
    fds: Descriptors,
    command: str,
    *,
    shares_network: bool = False,
    has_proxy: bool = False,
    readable: Sequence[tuple[str, str]] = (),
) -> list[str]:
    env = shell_environment(TASK_FOLDER)
    reach: list[str] = []
    if shares_network or has_proxy:
        reach = [*certificates(), *names(fds, shares_network=shares_network)]
        env |= VARIABLES if has_proxy else {}
    options = [
        *opening(isolation, fds, shares_network=shares_network),
        *reach,
        *tmpfs(isolation, "/tmp", limits.tmp_bytes),
        *("--bind", str(folder), TASK_FOLDER, "--chdir", TASK_FOLDER),
        *(part for source, inside in readable for part in ("--ro-bind", source, inside)),
        *closing(env),
    ]
    return bwrap(isolation, fds, options, [*prlimit(limits), *shell(command)])
