"""The folders that commands work in: made, measured and removed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.sandbox.limits import NOBODY, Isolation

ENTRY_BYTES = 4096
_ROOT_PREFIX = "switchback-terminal-"


def private_root(base: Path | None = None) -> Path:
    """A new folder for the folders of episodes, named after this process; the caller removes it.

    As root it must be reachable for nobody, which a path below a private home is not; hence the
    first of `base`, the temporary folder, `/tmp` and `/var/tmp` that is. Removes what processes
    left there that were killed.
    """
    candidates = [Path(p) for p in (base, tempfile.gettempdir(), "/tmp", "/var/tmp") if p]
    for candidate in candidates:
        if os.geteuid() != 0 or is_open_to_others(candidate):
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


def folder_size_bytes(folder: Path, enough_bytes: int | None = None) -> int:
    """Allocated bytes of all files and folders below, links not followed.

    An entry counts as a page at least: names alone fill a disk too. Stops counting once there are
    more than `enough_bytes`.
    """
    total = 0
    for path, names, files in os.walk(folder, onerror=partial(_open_up, folder)):
        for name in (*names, *files):
            try:
                total += max(ENTRY_BYTES, os.lstat(os.path.join(path, name)).st_blocks * 512)
            except FileNotFoundError:
                continue
            if enough_bytes is not None and total > enough_bytes:
                return total
    return total


def _open_up(folder: Path, error: OSError) -> None:
    """A folder that its owner cannot list would hide what is in it; next time it is counted.

    Step by step, because an agent may put a link to a folder of the host in its place meanwhile.
    """
    if not isinstance(error, PermissionError):
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        fd = os.open(folder, flags)
        stack.callback(os.close, fd)
        for part in Path(error.filename).relative_to(folder).parts:
            fd = os.open(part, flags, dir_fd=fd)
            stack.callback(os.close, fd)
        os.chmod(f"/proc/self/fd/{fd}", 0o700)


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


def is_open_to_others(path: Path) -> bool:
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
