"""Folders and zip archives as texts by path. What is in them is for `optimizer.harness` to judge.

An archive is foreign; `unpacking` reads it within the limits below.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from optimizer.errors import HarnessInvalid
from unpacking import ArchiveRefused, Limits, is_hidden, read_archive

MAX_FILE_BYTES = 1_000_000
MAX_FILES = 500
MAX_BYTES = 20_000_000
"""Of all files together."""
LIMITS = Limits(members=2 * MAX_FILES, total_bytes=MAX_BYTES, member_bytes=MAX_FILE_BYTES)
"""Of members twice as many: folders and what archivers add are passed over."""


def texts_of_folder(folder: Path) -> dict[str, str]:
    """Raises HarnessInvalid; hidden files are left out."""
    texts = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise HarnessInvalid(f"{name}: links are not followed")
        if path.is_file() and not is_hidden(name):
            texts[name] = decoded(name, path.read_bytes())
    return texts


def texts_of_zip(data: bytes) -> dict[str, str]:
    """Raises HarnessInvalid. A folder that holds all the rest is left out of the paths, as people
    pack folders.
    """
    try:
        files = read_archive(data, LIMITS, keep=lambda path: not is_hidden(path))
    except ArchiveRefused as error:
        raise HarnessInvalid(str(error)) from error
    if len(files) > MAX_FILES:
        raise HarnessInvalid(f"{len(files)} files; a harness has at most {MAX_FILES}")
    texts = {name: decoded(name, content) for name, content in files.items()}
    return _without_top_folder(texts)


def zip_of_texts(texts: Mapping[str, str]) -> bytes:
    """Equal texts give equal bytes: entries come as given and carry one fixed date."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def decoded(name: str, data: bytes) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise HarnessInvalid(f"{name}: above {MAX_FILE_BYTES:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HarnessInvalid(f"{name}: not UTF-8 text") from error


def _without_top_folder(texts: Mapping[str, str]) -> dict[str, str]:
    tops = {name.split("/")[0] for name in texts}
    if len(tops) != 1 or not all("/" in name for name in texts) or tops == {"skills"}:
        return dict(texts)
    return {name.split("/", 1)[1]: text for name, text in texts.items()}
