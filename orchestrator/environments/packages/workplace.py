"""Where pip works: a folder of the sandbox's user, whose result is taken over after a look at it.

In the sandbox the folder has the path of the finished installation, so scripts name the right
interpreter. Without isolation pip works where the folder is, and scripts are rewritten.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.environments.errors import SourceError
from orchestrator.environments.packages.installation import Installation
from orchestrator.environments.sandbox import (
    NOBODY,
    Isolation,
    detect,
    private_root,
    remove_folder,
)

_TAKEN = ("venv", "wheels")


@contextlib.contextmanager
def workplace(
    staging: Installation, installed: Installation, make_venv: Callable[[Path], None]
) -> Iterator[tuple[Path, Path]]:
    """The folder, and its path where pip runs. After the block, `venv` and `wheels` are in staging.

    `SourceError` if what was built leaves the folder by a link, or is no file or folder.
    """
    isolation = detect()
    root = private_root()
    work = root / "work"
    try:
        work.mkdir(mode=0o700)
        for name in ("tmp", "wheels"):
            (work / name).mkdir()
        inside = work if isolation.mode == "unsandboxed" else installed.folder.resolve()
        make_venv(work / "venv")
        if isolation.drops_root:
            _hand_over(work)
        yield work, inside
        _take_back(work, isolation)
        if isolation.mode == "unsandboxed":
            _move_scripts(work, installed.folder.resolve())
        shutil.rmtree(staging.wheels)
        for name in _TAKEN:
            shutil.move(work / name, staging.folder / name)
    finally:
        remove_folder(root)


def _hand_over(folder: Path) -> None:
    """Gives all of it to the sandbox's user, where that is another one."""
    for at, folders, names in os.walk(folder):
        for path in (at, *(os.path.join(at, name) for name in (*folders, *names))):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _take_back(work: Path, isolation: Isolation) -> None:
    """Makes it ours and readable for all. A build may have left anything there."""
    root = str(work.resolve())
    interpreters = work / "venv" / "bin"
    for at, folders, names in os.walk(work):
        for name in (*folders, *names):
            path = os.path.join(at, name)
            mode = os.lstat(path).st_mode
            if isolation.drops_root:
                os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
            if stat.S_ISLNK(mode):
                is_interpreter = Path(at) == interpreters and name.startswith("python")
                leads_to = os.path.realpath(path)
                if not is_interpreter and not leads_to.startswith(f"{root}/"):
                    raise SourceError(f"the installation left a link out of its folder: {name}")
            elif stat.S_ISDIR(mode):
                os.chmod(path, 0o755)  # noqa: S103 - servers run as another user
            elif stat.S_ISREG(mode):
                # No set-uid, no group's rights.
                os.chmod(path, 0o755 if mode & stat.S_IXUSR else 0o644)
            else:
                raise SourceError(f"the installation left something that is no file: {name}")


def _move_scripts(made_in: Path, to: Path) -> None:
    """Scripts name their interpreter by its path: the one after the move."""
    before, after = os.fsencode(made_in), os.fsencode(to)
    for path in (made_in / "venv" / "bin").iterdir():
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if before in content[:4096] and b"\0" not in content[:4096]:
                path.write_bytes(content.replace(before, after))
