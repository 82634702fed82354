"""The first thing that is read of an archive: what wrote it, what is in it, and the hashes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.keeping.errors import ArchiveInvalid

MEMBER = "manifest.json"
FORMAT = "switchback-project"
SCHEMA = 1
"""Grows when rows of the new form cannot be read by the code of the old."""
MAX_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Kept:
    """A member as it was written."""

    size: int
    """Bytes, unpacked."""
    sha256: str


@dataclass
class Manifest:
    project: str
    """Its name."""
    version: str
    """Of the product that wrote it."""
    made_at: str
    rows: dict[str, int] = field(default_factory=dict)
    """By table."""
    members: dict[str, Kept] = field(default_factory=dict)
    has_checkpoints: bool = False
    endpoints_without_key: list[str] = field(default_factory=list)
    """Names of endpoints that had a key: they need one again before they answer."""
    left_out: list[str] = field(default_factory=list)
    """In words."""

    def to_json(self) -> bytes:
        head = {"format": FORMAT, "schema": SCHEMA}
        return json.dumps({**head, **asdict(self)}, indent=1, ensure_ascii=False).encode()

    @property
    def content(self) -> dict[str, str]:
        """Hash by member: equal for two archives that hold the same project."""
        return {name: kept.sha256 for name, kept in sorted(self.members.items())}


def read_manifest(text: bytes) -> Manifest:
    """Raises ArchiveInvalid: of another kind, newer than this code, or of another shape."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArchiveInvalid(f"{MEMBER} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise ArchiveInvalid(f"{MEMBER} is not that of an exported project.")
    schema = data.pop("schema", None)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise ArchiveInvalid(
            f"The archive was written by version {data.get('version')!r:.40} in schema {schema!r}; "
            f"this installation reads up to schema {SCHEMA}. Update it, then import again."
        )
    try:
        members = {
            str(name): Kept(int(kept["size"]), str(kept["sha256"]))
            for name, kept in data.pop("members").items()
        }
        rows = {str(name): int(count) for name, count in data.pop("rows").items()}
        data["project"] = str(data["project"])[:100]
        found = Manifest(**data, members=members, rows=rows)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArchiveInvalid(f"{MEMBER} has another shape: {error}") from error
    if not found.project.strip():
        raise ArchiveInvalid(f"{MEMBER} has no name of a project.")
    return found
