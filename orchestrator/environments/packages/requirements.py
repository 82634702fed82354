"""What a source needs besides openenv.

openenv itself is there already: servers see this installation's packages behind their own. So
requirements on it are left out where ours fits; pip then keeps ours, and takes other versions of
shared packages into the source's own environment, where they win.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from orchestrator.environments.errors import SourceError
from orchestrator.environments.packages.layout import read_pyproject

OPENENV_NAMES = frozenset({"openenv", "openenv-core"})
"""The library was published under both."""


@dataclass(frozen=True)
class Requirements:
    texts: tuple[str, ...]
    """For pip, sorted."""
    ignored: tuple[str, ...] = ()
    """Lines of a requirements file that are options of pip."""
    note: str = ""
    """What may be the reason if the server does not start."""


def openenv_version() -> str:
    """Of this installation. `SourceError` if it has none."""
    try:
        return metadata.version("openenv")
    except metadata.PackageNotFoundError as exc:
        raise SourceError(
            "openenv is not installed here: python -m pip install -r requirements/env.txt"
        ) from exc


def requirements_of(folder: Path, further: Sequence[str] = ()) -> Requirements:
    """Of `pyproject.toml`, else of `server/requirements.txt` or `requirements.txt`.

    `SourceError` for a line that is none. A Python that does not fit is noted: the folder is
    served, not installed, and many ask for more than they need.
    """
    project = read_pyproject(folder).get("project")
    ignored: list[str] = []
    note = ""
    lines: list[str] = []
    if isinstance(project, dict):
        note = _python_note(str(project.get("requires-python") or ""))
        lines = [str(line) for line in project.get("dependencies") or ()]
        where = "pyproject.toml"
    else:
        where = "requirements.txt"
        for path in (folder / "server" / where, folder / where):
            if path.is_file():
                lines, ignored = _lines(path.read_text(encoding="utf-8", errors="replace"))
                break
    wanted = [*parse_requirements(lines, where), *parse_requirements(further, "requirements")]
    return Requirements(
        tuple(sorted({str(w) for w in wanted if not _is_ours(w)})), tuple(ignored), note
    )


def parse_requirements(lines: Iterable[str], where: str) -> list[Requirement]:
    parsed = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as exc:
            reason = str(exc).splitlines()[0]
            raise SourceError(f"{where}: {line!r:.100} is not a requirement: {reason}") from exc
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            parsed.append(requirement)
    return parsed


def _is_ours(requirement: Requirement) -> bool:
    """openenv, where ours will do; one from an address is meant for a checkout of its authors."""
    if canonicalize_name(requirement.name) not in OPENENV_NAMES:
        return False
    return bool(requirement.url) or requirement.specifier.contains(
        openenv_version(), prereleases=True
    )


def _python_note(text: str) -> str:
    mine = ".".join(map(str, sys.version_info[:3]))
    try:
        fits = SpecifierSet(text).contains(mine)
    except InvalidSpecifier as exc:
        raise SourceError(f"pyproject.toml: requires-python: {text!r:.60}") from exc
    return "" if fits else f"Its pyproject.toml asks for Python {text}; this server runs {mine}."


def _lines(text: str) -> tuple[list[str], list[str]]:
    """Requirements, and lines that are options of pip."""
    wanted, ignored = [], []
    for raw in text.replace("\\\n", " ").splitlines():
        line = raw.strip()
        if line.startswith("-"):
            ignored.append(line)
        elif line and not line.startswith("#"):
            wanted.append(line.split(" #")[0].split(" --")[0].strip())
    return wanted, ignored
