"""A source that is installed: a folder below `env/packages`, named by the digest of its content.

venv/            its own virtual environment
src/<package>/   its folder as it was, if it came as one
data/            further files, of which each server gets a copy
wheels/          for environments that call pip at reset
install.log      what pip said
installed.json   written last: without it the folder is not an installation
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orchestrator.environments.errors import SourceError

DONE = "installed.json"


@dataclass(frozen=True)
class Installation:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def source(self) -> Path:
        return self.folder / "src"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def log(self) -> Path:
        return self.folder / "install.log"

    @property
    def is_complete(self) -> bool:
        return (self.folder / DONE).is_file()

    def facts(self) -> dict[str, Any]:
        """What was written at the end of the installation."""
        facts: dict[str, Any] = json.loads((self.folder / DONE).read_text(encoding="utf-8"))
        return facts


def is_installation(name: str) -> bool:
    """Whether it is the name of one: a digest, no path."""
    return re.fullmatch(r"[0-9a-f]{24}", name) is not None


def packages_root(data: Path) -> Path:
    return data / "packages"


def shared_packages() -> list[str]:
    """Where this installation's own packages are: openenv, and what it needs.

    `SourceError` without openenv.
    """
    spec = find_spec("openenv")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise SourceError(
            "openenv is not installed here: python -m pip install -r requirements/env.txt"
        )
    found = [str(Path(places[0]).parent)]
    for name in ("purelib", "platlib"):
        path = sysconfig.get_path(name)
        if path not in found and os.path.isdir(path):
            found.append(path)
    return found


def interpreter_paths() -> list[str]:
    """What a sandbox must show, beside the system's own files, for the interpreter to start."""
    prefix = sys.base_prefix
    if prefix == "/usr":
        return []
    if prefix != "/usr/local":
        return [prefix]
    # The sandbox hides /usr/local, which holds whatever people installed: show Python alone.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    names = [f"bin/{version}", "bin/python3", "bin/python", f"lib/{version}"]
    paths = [Path(prefix, name) for name in names]
    paths += sorted(Path(prefix, "lib").glob(f"lib{version}*.so*"))
    paths += sorted(Path(prefix, "lib").glob("libpython3.so"))
    return [str(path) for path in paths if path.exists()]
