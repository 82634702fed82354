"""From what a browser sends, a zip file or the files of a folder, to the texts of a harness. Pure.

Archives are read by `unpacking`, and nothing is written to disk. A folder around everything is
passed over, as are hidden files and what archivers add; any other file that is not part of a
harness is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optimizer.errors import HarnessInvalid
from optimizer.harness import CONFIG, DEMONSTRATIONS, INSTRUCTIONS, TOOLS, Harness
from orchestrator.harnesses.errors import UploadRefused
from unpacking import ArchiveRefused, Limits, is_hidden, read_archive, safe_path
from unpacking.limits import amount

MAX_UPLOAD_BYTES = 8 * 2**20
"""As it is sent."""
MAX_BYTES = 16 * 2**20
"""Of all files together, unpacked. The largest harness of the examples has 30 kB."""
MAX_ENTRIES = 1_000
"""Of an archive, those that are passed over included."""
LIMITS = Limits(members=MAX_ENTRIES, total_bytes=MAX_BYTES, sent_bytes=MAX_UPLOAD_BYTES)
_ROOTS = (CONFIG, INSTRUCTIONS, DEMONSTRATIONS, TOOLS)


def harness_of_zip(content: bytes) -> Harness:
    """Raises UploadRefused."""
    try:
        files = read_archive(content, LIMITS, keep=lambda path: not is_hidden(path))
    except ArchiveRefused as error:
        hint = " Send one, or choose the folder." if error.code == "not-an-archive" else ""
        raise UploadRefused(f"{error}{hint}") from error
    return harness_of(files.items())


def harness_of(files: Iterable[tuple[str, bytes]]) -> Harness:
    """`files`: path and content. Raises UploadRefused."""
    kept: dict[str, bytes] = {}
    size = 0
    for name, content in files:
        try:
            path = safe_path(name)
        except ArchiveRefused as error:
            raise UploadRefused(str(error)) from error
        if not path or is_hidden(path):
            continue
        size += len(content)
        if size > MAX_BYTES:
            raise UploadRefused(
                f"All files together: {amount(size)}; the limit is {amount(MAX_BYTES)}."
            )
        if path in kept:
            raise UploadRefused(f"{path}: is there twice. Send each file once.")
        kept[path] = content
    if not kept:
        raise UploadRefused(f"There is no file in it. A harness has at least {INSTRUCTIONS}.")
    root = _root(kept)
    texts = {path.removeprefix(root): _text(path, data) for path, data in kept.items()}
    try:
        return Harness.from_components(texts)
    except HarnessInvalid as error:
        raise UploadRefused(str(error)) from error


def _root(files: Mapping[str, bytes]) -> str:
    """The folder around everything, as `name/`; empty where a file of a harness is at the top."""
    if any(path in _ROOTS or path.startswith("skills/") for path in files):
        return ""
    first = {path.partition("/")[0] for path in files if "/" in path}
    tops = {path for path in files if "/" not in path}
    return f"{first.pop()}/" if len(first) == 1 and not tops else ""


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UploadRefused(
            f"{path}: is not text in UTF-8 (byte {error.start + 1}). Save it as UTF-8, or leave it "
            "out: a harness holds texts."
        ) from error
