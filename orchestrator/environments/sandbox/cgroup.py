"""Control groups: limits on a whole tree of processes, where this process may make groups.

Versions 1 and 2 are used as they are mounted. A group is made below the group of this process, or
beside it: version 2 hands no controllers to the children of a group that holds processes. Nothing
is assumed: a group is made, limited and removed once, and what works is remembered.

Groups carry the number of the process that made them, so that those of killed processes are swept.
A group cannot be removed while a process in it is dying; such ones are tried again later.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONTROLLERS = ("memory", "pids", "cpu")
PREFIX = "switchback-"
CPU_PERIOD_US = 100_000

_emptying: deque[Path] = deque()
"""Folders of groups whose processes were dying when they should have gone; deques are atomic."""
LAST_WAIT_S = 0.5


@dataclass(frozen=True)
class Place:
    """Where groups of one controller can be made."""

    folder: Path
    is_unified: bool
    """Version 2."""


@dataclass(frozen=True)
class Allowance:
    """What the processes of a group may use together. None: no limit."""

    memory_bytes: int | None = None
    processes: int | None = None
    cpus: float | None = None


@dataclass
class Group:
    """One group, in one folder for each hierarchy."""

    allowance: Allowance
    places: Mapping[str, Place]
    folders: Mapping[str, Path] = field(default_factory=dict)
    """By controller."""

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(self.folders.values()))

    def struck(self, own_processes: int = 0) -> list[str]:
        """The limits that were met, in words; empty if none. `own_processes` are not spoken of."""
        found = []
        if self.memory_kills():
            found.append(f"memory limit of {(self.allowance.memory_bytes or 0) / 2**20:g} MiB")
        if self._count("pids", "pids.events", "max"):
            found.append(f"limit of {(self.allowance.processes or 0) - own_processes} processes")
        return found

    def memory_kills(self) -> int:
        """How many processes the kernel has ended because the group's memory was used up."""
        place = self.places.get("memory")
        name = "memory.events" if place and place.is_unified else "memory.oom_control"
        return self._count("memory", name, "oom_kill")

    def kill(self) -> None:
        """SIGKILL to whatever is in it, more than once if it forks meanwhile."""
        for path in self.paths:
            _kill_in(path)

    def close(self) -> None:
        """Remove it, now or when its last process is gone. Safe to call twice."""
        _emptying.extend(self.paths)
        self.folders = {}
        _remove_empty()

    def _count(self, controller: str, name: str, key: str) -> int:
        folder = self.folders.get(controller)
        if folder is None:
            return 0
        try:
            lines = folder.joinpath(name).read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.split()[0] == key), 0)


def make(allowance: Allowance, places: Mapping[str, Place] | None = None) -> Group | None:
    """A new group with these limits; None where this process may not make any.

    A controller that is missing is left out; `Group.folders` says which there are.
    """
    places = usable() if places is None else places
    if not places:
        return None
    _remove_empty()
    group = Group(allowance, places)
    name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
    try:
        wanted = {
            "memory": allowance.memory_bytes,
            "pids": allowance.processes,
            "cpu": allowance.cpus,
        }
        group.folders = {c: p.folder / name for c, p in places.items() if wanted[c] is not None}
        for path in group.paths:
            path.mkdir()
        _limit(group)
    except OSError:
        group.close()
        return None
    return group


@functools.cache
def usable() -> Mapping[str, Place]:
    """The controllers that this process may use, by a real try (under a millisecond)."""
    found: dict[str, Place] = {}
    for controller in CONTROLLERS:
        for place in _candidates(controller):
            allowance = Allowance(memory_bytes=2**26, processes=64, cpus=1.0)
            group = make(allowance, {controller: place})
            if group is not None:
                group.close()
                found[controller] = place
                _sweep(place.folder)
                break
    return found


def _limit(group: Group) -> None:
    allowance = group.allowance
    settings: list[tuple[str, str, str | None]] = []
    for controller in group.folders:
        new = group.places[controller].is_unified
        if controller == "memory":
            limit = str(allowance.memory_bytes)
            settings += (
                [("memory", "memory.max", limit), ("memory", "memory.oom.group", "1")]
                if new
                else [("memory", "memory.limit_in_bytes", limit)]
            )
            # Else a group would go on in the swap space. The file is absent where there is none.
            swap = ("memory.swap.max", "0") if new else ("memory.memsw.limit_in_bytes", limit)
            if group.folders["memory"].joinpath(swap[0]).exists():
                settings.append(("memory", *swap))
        elif controller == "pids":
            settings.append(("pids", "pids.max", str(allowance.processes)))
        else:
            quota = max(1000, int((allowance.cpus or 1.0) * CPU_PERIOD_US))
            settings += (
                [("cpu", "cpu.max", f"{quota} {CPU_PERIOD_US}")]
                if new
                else [
                    ("cpu", "cpu.cfs_period_us", str(CPU_PERIOD_US)),
                    ("cpu", "cpu.cfs_quota_us", str(quota)),
                ]
            )
    for controller, name, value in settings:
        # "r+" never creates: where the controller is missing, so is the file.
        with group.folders[controller].joinpath(name).open("r+") as file:
            file.write(value or "")


def _candidates(controller: str) -> Iterator[Place]:
    """This process's own group, then the one above it."""
    mounted = _mounted(controller)
    if mounted is None:
        return
    mount, root, is_unified = mounted
    own = _own_group("" if is_unified else controller)
    if own is None:
        return
    relative = os.path.relpath(own, root)
    folder = mount if relative.startswith("..") else (mount / relative).resolve()
    yield Place(folder, is_unified)
    if folder != mount:
        yield Place(folder.parent, is_unified)


def _mounted(controller: str) -> tuple[Path, str, bool] | None:
    """Mount point, the group at its root, and whether it is version 2."""
    unified = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split()[3:5]
        if kind == "cgroup" and controller in options.split(","):
            return Path(mount), root, False
        if kind == "cgroup2":
            unified = Path(mount), root, True
    return unified


def _own_group(controller: str) -> str | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return None


def _kill_in(path: Path) -> None:
    for _ in range(10):
        pids = _pids_in(path)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _pids_in(path: Path) -> list[int]:
    try:
        return [int(pid) for pid in path.joinpath("cgroup.procs").read_text().split()]
    except OSError:
        return []


def _remove_empty() -> None:
    for _ in range(len(_emptying)):
        with contextlib.suppress(IndexError):
            path = _emptying.popleft()
            try:
                path.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # a process in it is dying still
                _emptying.append(path)


@atexit.register
def _remove_last() -> None:
    """Wait a moment for the processes that were killed last."""
    deadline = time.monotonic() + LAST_WAIT_S
    pause = threading.Event()
    while _emptying and time.monotonic() < deadline:
        _remove_empty()
        pause.wait(0.002)


def _sweep(folder: Path) -> None:
    for left in folder.glob(f"{PREFIX}*-*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            # What a killed worker could not end.
            _kill_in(left)
            _emptying.append(left)
    _remove_empty()
