"""Where the app of a folder is: the layouts that the OpenEnv repository uses.

A folder `echo_env` with `server/app.py` is imported as `echo_env.server.app`, from beside the
folder, or as `server.app`, from in it. Some environments import in one way only, so both are given,
in this order, and the server takes the first that works (openenv's own images do the second).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.environments.errors import SourceError
from orchestrator.environments.packages.manifest import FILE, Manifest, is_app

DEFAULT_APP = "server.app:app"


@dataclass(frozen=True)
class Candidate:
    """A way to import the app."""

    app: str
    """`module:attribute`"""
    is_beside: bool
    """Imported from beside the folder; else from in it."""


@dataclass(frozen=True)
class Layout:
    package: str
    """Name under which the folder is importable."""
    candidates: tuple[Candidate, ...]


def find_layout(folder: Path, manifest: Manifest | None, app: str = "") -> Layout:
    """How to import the app of `folder`; with `app`, that one only.

    `SourceError` if nothing says which app it is.
    """
    package = package_name(folder, manifest)
    named = app or (manifest.app if manifest else "")
    if named and not is_app(named):
        raise SourceError(f"app: {named!r:.80} is not module:attribute, like {DEFAULT_APP}")
    chosen = named or DEFAULT_APP
    module = chosen.partition(":")[0]
    if module == package or module.startswith(f"{package}."):
        module = module.removeprefix(package).lstrip(".")
        candidates = [Candidate(chosen, is_beside=True)]
    else:
        candidates = [
            Candidate(f"{package}.{chosen}", is_beside=True),
            Candidate(chosen, is_beside=False),
        ]
    path = folder.joinpath(*module.split(".")) if module else folder
    if not path.with_suffix(".py").is_file() and not (path / "__init__.py").is_file():
        where = path.relative_to(folder).with_suffix(".py")
        source = "app" if app else FILE if named else "the OpenEnv layout"
        raise SourceError(f"path: {folder.name} has no {where}, which {source} names as the app")
    return Layout(package, tuple(candidates))


def package_name(folder: Path, manifest: Manifest | None) -> str:
    """What pyproject.toml maps to the folder itself, else the folder's name, else the manifest's.

    Anything that is not an identifier becomes one.
    """
    tools = read_pyproject(folder).get("tool")
    setuptools = tools.get("setuptools") if isinstance(tools, dict) else None
    mapped = setuptools.get("package-dir") if isinstance(setuptools, dict) else None
    if isinstance(mapped, dict):
        for name, where in mapped.items():
            if where in (".", "./") and isinstance(name, str) and name.isidentifier():
                return name
    for name in (folder.name, manifest.name if manifest else ""):
        if name.isidentifier():
            return name
    return "_" + re.sub(r"\W", "_", folder.name).strip("_")


def read_pyproject(folder: Path) -> dict[str, Any]:
    """Empty where there is none. `SourceError` for one that is not TOML."""
    try:
        return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise SourceError(f"pyproject.toml: {exc}") from exc
