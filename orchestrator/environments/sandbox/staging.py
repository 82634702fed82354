"""Making private paths readable for user nobody without opening them to anyone else.

A server's interpreter or code may lie below a home folder of mode 0700, which the sandbox's user
cannot pass. Root can bind such a path to a place that it can reach: in a mount namespace of this
process alone, so that nothing is left when the process ends and nobody else sees it.

Enter `staged` before other threads start: the namespace belongs to the calling thread and what it
starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.environments.errors import SandboxError

CLONE_NEWNS = 0x00020000  # <linux/sched.h>
MS_RDONLY, MS_REMOUNT, MS_BIND = 0x1, 0x20, 0x1000  # <linux/mount.h>
MS_REC, MS_SLAVE = 0x4000, 0x80000
MNT_DETACH = 2
_PREFIX = "switchback-stage-"

Bind = tuple[str, str]
"""Path on the host, path inside."""


@contextlib.contextmanager
def staged(readable: Sequence[Bind]) -> Iterator[list[Bind]]:
    """The binds, with sources that nobody cannot reach replaced by ones that it can.

    Root only. `SandboxError` where mounting is not permitted and something would be unreachable.
    """
    if all(is_reachable(Path(source)) for source, _ in readable):
        yield list(readable)
        return
    base = _base()
    try:
        _call("unshare", CLONE_NEWNS)
        _mount(None, "/", MS_REC | MS_SLAVE)
        _call("mount", b"tmpfs", os.fsencode(base), b"tmpfs", ctypes.c_ulong(0), b"mode=0755")
        try:
            yield _bind_below(base, readable)
        finally:
            _call("umount2", os.fsencode(base), MNT_DETACH)
    finally:
        base.rmdir()


def _bind_below(base: Path, readable: Sequence[Bind]) -> list[Bind]:
    binds = []
    for number, (source, inside) in enumerate(readable):
        path = Path(source).resolve()
        if not is_reachable(path):
            place = base / str(number)
            if path.is_dir():
                place.mkdir()
            else:
                place.touch()
            _mount(str(path), str(place), MS_BIND | MS_REC)
            _mount(None, str(place), MS_BIND | MS_REMOUNT | MS_RDONLY)
            path = place
        binds.append((str(path), inside))
    return binds


def is_reachable(path: Path) -> bool:
    """Whether user nobody may pass all folders above it. `SandboxError` if it is not there."""
    try:
        resolved = path.resolve(strict=True)
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in resolved.parents)
    except OSError as exc:
        raise SandboxError(f"{path} cannot be shown to the sandbox: {exc}") from exc


def _base() -> Path:
    """An empty folder that stays empty on the host. Removes those of ended processes."""
    parent = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    for left in parent.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX)
        if pid.isdigit() and not Path("/proc", pid).exists():
            # Never more than an empty folder: what was mounted there is gone with its process.
            with contextlib.suppress(OSError):
                left.rmdir()
    base = parent / f"{_PREFIX}{os.getpid()}"
    base.mkdir(mode=0o755, exist_ok=True)
    return base


def _mount(source: str | None, target: str, flags: int) -> None:
    origin = os.fsencode(source) if source is not None else None
    _call("mount", origin, os.fsencode(target), None, ctypes.c_ulong(flags), None)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise SandboxError(
            f"{name}: {os.strerror(ctypes.get_errno())}; a path that user nobody cannot reach must "
            "be shown to the sandbox, and this process may not mount. Put it below folders of mode "
            "o+x, or run the worker as another user than root."
        )
