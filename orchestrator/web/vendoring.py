"""The manifest of vendored files: what they are, where from, and whether they are unchanged."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "vendor.toml"


@dataclass(frozen=True)
class VendoredFile:
    name: str
    package: str
    version: str
    source: str
    """Path inside the package."""
    path: str
    """Path below `static/vendor`."""
    sha256: str
    licence: str


def read_manifest(folder: Path) -> list[VendoredFile]:
    """Raises TypeError for an entry with a missing or unknown field."""
    data = tomllib.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return [VendoredFile(**entry) for entry in data.get("file", [])]


def problems(folder: Path) -> list[str]:
    """One sentence per missing, changed or unlisted file; empty when all is as written."""
    found: list[str] = []
    listed = read_manifest(folder)
    for item in listed:
        path = folder / item.path
        if not path.is_file():
            found.append(f"{item.path} is listed and missing")
        elif (digest := hashlib.sha256(path.read_bytes()).hexdigest()) != item.sha256:
            found.append(f"{item.path} has changed: sha256 is {digest}, listed {item.sha256}")
    known = {item.path for item in listed} | {MANIFEST}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in known:
            found.append(f"{name} is not in {MANIFEST}")
    return found
