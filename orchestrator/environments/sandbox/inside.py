"""What a server finds around it: the command line that starts it in its sandbox, or without one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.sandbox.bubblewrap import (
    Descriptors,
    as_nobody,
    bwrap,
    certificates,
    closing,
    entering,
    holding,
    names,
    opening,
    processes_of,
    tmpfs,
)
from orchestrator.environments.sandbox.command import OWN_PROCESSES
from orchestrator.environments.sandbox.doorway import VARIABLES
from orchestrator.environments.sandbox.limits import NOBODY, Isolation
from orchestrator.environments.sandbox.service import HOME, ServiceSpec
from orchestrator.environments.sandbox.staging import Bind, is_reachable

SHARED_MEMORY_BYTES = 64 * 2**20
PASSWD = "nobody:x:65534:65534:nobody:/tmp/home:/usr/sbin/nologin\n"
GROUP = "nogroup:x:65534:\n"


def isolated_argv(
    spec: ServiceSpec,
    isolation: Isolation,
    binds: Sequence[Bind],
    listener: int,
    group: cgroup.Group | None,
    fds: Descriptors,
    *,
    has_proxy: bool,
) -> list[str]:
    """A server that starts when a line comes from its standard input.

    `binds`: `spec.readable` with sources that the sandbox's user can reach.
    """
    shares_network = spec.resources.network.mode == "open"
    options = [
        *opening(isolation, fds, shares_network=shares_network),
        *names(fds, shares_network=shares_network),
        *certificates(),
        *_folders(spec, isolation, binds, fds),
        *closing(_environment(spec, has_proxy=has_proxy)),
    ]
    command = [part.replace("{fd}", str(listener)) for part in spec.command]
    limited = [*_limits(spec.resources, group), *holding(command)]
    return [*entering(group.paths if group else ()), *bwrap(isolation, fds, options, limited)]


def unsandboxed_argv(
    spec: ServiceSpec, isolation: Isolation, home: Path, listener: int, group: cgroup.Group | None
) -> tuple[list[str], dict[str, str], Path]:
    """Command, variables and working directory of a server with limits alone.

    Paths inside become those on the host; `home` stands for the home folder. `SandboxError` for
    what the server could not read.
    """
    dropping = as_nobody() if isolation.drops_root else []
    if dropping:
        for source, _ in (*spec.readable, *spec.writable):
            if not is_reachable(Path(source)):
                raise SandboxError(
                    f"{source} is out of reach for user nobody, as whom a root worker runs servers "
                    "without isolation: run the worker as another user"
                )
        os.chown(home, NOBODY, NOBODY)
    if dropping or shutil.which("setpriv"):
        # What bubblewrap does else: end with the launcher.
        dropping = [*(dropping or ["setpriv"]), "--pdeathsig", "KILL"]
    besides = processes_of(NOBODY if isolation.drops_root else os.getuid())
    places = {inside: source for source, inside in (*spec.readable, *spec.writable)}
    places[HOME] = str(home)
    command = [_on_host(part.replace("{fd}", str(listener)), places) for part in spec.command]
    env = {
        name: _on_host(value, places)
        for name, value in {**_environment(spec, has_proxy=False), "TMPDIR": HOME}.items()
    }
    argv = [
        *entering(group.paths if group else ()),
        *dropping,
        *_limits(spec.resources, group, besides),
        *command,
    ]
    return argv, env, Path(_on_host(spec.folder, places))


def _on_host(text: str, places: dict[str, str]) -> str:
    """Paths inside, longest first and whole, replaced by those on the host."""
    insides = sorted((re.escape(inside) for inside in places), key=len, reverse=True)
    pattern = rf"(?<![\w./-])({'|'.join(insides)})(?![\w.-])"
    return re.sub(pattern, lambda match: places[match[1]], text)


def _folders(
    spec: ServiceSpec, isolation: Isolation, binds: Sequence[Bind], fds: Descriptors
) -> list[str]:
    """Options for what is visible beside the system."""
    disk_bytes = spec.resources.disk_mb * 2**20
    argv = [*tmpfs(isolation, "/tmp", disk_bytes), "--dir", HOME]
    argv += tmpfs(isolation, "/dev/shm", min(SHARED_MEMORY_BYTES, disk_bytes))
    argv += ["--ro-bind-data", fds.content(PASSWD), "/etc/passwd"]
    argv += ["--ro-bind-data", fds.content(GROUP), "/etc/group"]
    argv += ["--ro-bind-try", "/etc/mime.types", "/etc/mime.types"]
    for source, inside in binds:
        argv += ["--ro-bind", source, inside]
    for source, inside in spec.writable:
        argv += ["--bind", source, inside]
    return [*argv, "--chdir", spec.folder]


def _environment(spec: ServiceSpec, *, has_proxy: bool) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": HOME,
        "USER": "nobody",
        "TMPDIR": "/tmp",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(VARIABLES if has_proxy else {}),
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
