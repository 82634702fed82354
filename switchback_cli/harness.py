"""A harness as the API takes it: a folder, a zip file, or the name of one that is kept there."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from switchback_cli.errors import CommandFailed

MOST_BYTES = 8 * 2**20


def source_of(told: str) -> dict[str, Any]:
    """Of a request. Raises CommandFailed."""
    if told == "released":
        return {"released": True}
    path = Path(told)
    if path.is_dir():
        return {"files": _files(path)}
    if path.is_file():
        content = path.read_bytes()
        if len(content) > MOST_BYTES:
            raise CommandFailed(
                f"{told}: {len(content):,} bytes; at most {MOST_BYTES:,} are taken."
            )
        return {"zip": base64.b64encode(content).decode()}
    if "/" in told or "\\" in told or told.endswith(".zip"):
        raise CommandFailed(f"{told}: there is no such folder or file.")
    return {"ref": told}


def _files(folder: Path) -> dict[str, str]:
    """Texts by path; hidden files stay out, links are not followed."""
    found: dict[str, str] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if any(part.startswith(".") for part in name.parts) or path.is_symlink():
            continue
        if not path.is_file():
            continue
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise CommandFailed(f"{path}: is not text in UTF-8; a harness holds texts.") from error
        size += len(text)
        if size > MOST_BYTES:
            raise CommandFailed(f"{folder}: more than {MOST_BYTES:,} bytes. Name its own folder.")
        found[name.as_posix()] = text
    if not found:
        raise CommandFailed(f"{folder}: is empty. A harness has at least instructions.md.")
    return found
