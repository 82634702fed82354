"""Zip and tar archives from outside, member by member, within limits.

Nothing is trusted that an archive says of itself. Names become plain relative paths or are refused;
sizes are counted while bytes come out of the decompressor, never taken from the directory; links,
devices, encrypted and overlapping members, and names that are there twice end the reading. Of a
zip stored, deflated and Zstandard members are read, the last with a bounded window: what other ways
ask for in memory is theirs to say.

A zip is read from its directory, a tar from front to back, once. Nothing is written to disk here;
`Archive.extract` does so for callers that want files, below one folder that must be empty.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

from unpacking.limits import RATIO_FLOOR_BYTES, Limits, amount
from unpacking.names import safe_path
from unpacking.refusal import ArchiveRefused
from unpacking.zstandard import ZSTANDARD, open_zstandard

_CHUNK = 256 * 1024
_DAMAGED: tuple[type[BaseException], ...] = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError),
    *(NotImplementedError, RuntimeError, ValueError, OverflowError, UnicodeError),
    *(OSError, MemoryError, KeyError, IndexError),
)
"""What the readers of the standard library raise of foreign bytes: they seek to where they say."""
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
"""Bits of a member's flags: the usual way, the strong one, and a masked directory."""
_DIRECTORY_BYTES = 2_048
"""Of a zip's directory, per member that is allowed: it is read into memory before any count."""
_END, _END64_LOCATOR = b"PK\x05\x06", b"PK\x06\x07"
_TAR_OVERHEAD = 4
"""A tar has headers and padding beside its files: of so many times 512 bytes per member."""

Keep = Callable[[str], bool]
"""Whether a path is wanted. What is not is passed over: neither unpacked nor counted in bytes."""


@dataclass(frozen=True)
class Member:
    path: str
    """Relative, with `/`."""
    content: bytes


@dataclass(frozen=True)
class _Entry:
    path: str
    name: str
    """As the archive spells it, for messages."""
    open: Callable[[], IO[bytes]]


class Archive:
    """An open archive. Its bytes are counted over all that is read of it."""

    def __init__(self, entries: Iterator[_Entry], limits: Limits, sent_bytes: int) -> None:
        self._entries = entries
        self._limits = limits
        self._sent_bytes = sent_bytes
        self._read_bytes = 0

    def streams(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Each wanted file's path and its chunks, which are to be read before the next file.

        Raises ArchiveRefused, from the chunks as well.
        """
        with _foreign():
            yield from ((entry.path, self._chunks(entry)) for entry in self._entries)

    def members(self) -> Iterator[Member]:
        """Each wanted file with its whole content. Raises ArchiveRefused."""
        for path, chunks in self.streams():
            yield Member(path, b"".join(chunks))

    def by_path(self) -> dict[str, Callable[[], Iterator[bytes]]]:
        """What gives the chunks of each wanted file, in any order. Of a zip only: a tar has none.

        Raises ArchiveRefused.
        """
        with _foreign():
            entries = list(self._entries)
        return {entry.path: partial(self._chunks, entry) for entry in entries}

    def extract(self, folder: Path) -> list[str]:
        """Writes the wanted files below `folder`, which is empty; returns their paths.

        Raises ArchiveRefused; what was written until then stays, for the caller to remove.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty")
        paths = []
        for path, chunks in self.streams():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(target, flags, 0o644), "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            paths.append(path)
        return paths

    def _chunks(self, entry: _Entry) -> Iterator[bytes]:
        limits, size = self._limits, 0
        with _foreign(entry.name), entry.open() as file:
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                self._read_bytes += len(chunk)
                if limits.member_bytes is not None and size > limits.member_bytes:
                    raise ArchiveRefused(
                        "too-large",
                        f"{entry.name}: has more than {amount(limits.member_bytes)} unpacked, "
                        "which is the limit of one file.",
                        entry.name,
                    )
                if self._read_bytes > limits.total_bytes:
                    raise ArchiveRefused(
                        "too-large",
                        f"{entry.name}: with it the files have more than "
                        f"{amount(limits.total_bytes)} unpacked, which is the limit.",
                        entry.name,
                    )
                if self._read_bytes > max(RATIO_FLOOR_BYTES, limits.ratio * self._sent_bytes):
                    raise ArchiveRefused(
                        "ratio",
                        f"{entry.name}: unpacks to more than {limits.ratio} times the size of the "
                        "archive. Such an archive is taken for one that is made to fill the disk.",
                        entry.name,
                    )
                yield chunk


@contextmanager
def open_archive(
    source: bytes | BinaryIO | Path, limits: Limits, *, keep: Keep | None = None, tar: bool = False
) -> Iterator[Archive]:
    """A zip, or with `tar` also a tar (plain or gzip). Raises ArchiveRefused."""
    with _opened(source) as file:
        sent_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        if limits.sent_bytes is not None and sent_bytes > limits.sent_bytes:
            raise ArchiveRefused(
                "too-large",
                f"The file has {amount(sent_bytes)}; the limit is {amount(limits.sent_bytes)}.",
            )
        start = file.read(512)
        file.seek(0)
        if tar and (start[:2] == b"\x1f\x8b" or start[257:262] == b"ustar"):
            entries = _of_tar(file, start[:2] == b"\x1f\x8b", limits, keep or _all)
            yield Archive(entries, limits, sent_bytes)
            return
        wanted = "zip or tar file" if tar else "zip file"
        try:
            _check_directory(file, sent_bytes, limits)
            archive = zipfile.ZipFile(file)
        except ArchiveRefused:
            raise
        except _DAMAGED as error:
            raise ArchiveRefused("not-an-archive", f"This is not a {wanted}.") from error
        with archive:
            yield Archive(_of_zip(archive, limits, keep or _all), limits, sent_bytes)


def read_archive(
    source: bytes | BinaryIO | Path, limits: Limits, *, keep: Keep | None = None, tar: bool = False
) -> dict[str, bytes]:
    """Contents by path, for archives that fit into memory. Raises ArchiveRefused."""
    with open_archive(source, limits, keep=keep, tar=tar) as archive:
        return {member.path: member.content for member in archive.members()}


def _of_zip(archive: zipfile.ZipFile, limits: Limits, keep: Keep) -> Iterator[_Entry]:
    """Everything about names and kinds is decided before the first byte is unpacked."""
    infos = archive.infolist()
    _check_count(len(infos), limits)
    tree, wanted = _Tree(), []
    for info in infos:
        # `filename` is cut at a NUL; `orig_filename` is what the archive says.
        path = safe_path(info.orig_filename)
        if not path or info.orig_filename.endswith(("/", "\\")) or not keep(path):
            continue
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind == stat.S_IFLNK:
            raise _link(info.filename)
        if kind not in (0, stat.S_IFREG):
            raise _special(info.filename)
        if info.flag_bits & _ENCRYPTED:
            raise ArchiveRefused(
                "encrypted",
                f"{info.filename}: is encrypted. Make the archive again, without a password.",
                info.filename,
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTANDARD):
            raise ArchiveRefused(
                "compression",
                f"{info.filename}: is packed in a way that is not read here. Make the archive "
                "with the usual compression (deflate).",
                info.filename,
            )
        tree.add(path, info.filename)
        wanted.append((path, info))
    _check_overlap(info for _, info in wanted)
    for path, info in wanted:
        yield _Entry(path, info.filename, _opener(archive, info))


def _check_directory(file: BinaryIO, sent_bytes: int, limits: Limits) -> None:
    """Its size is at the end of a zip, and `zipfile` reads that much at once."""
    file.seek(max(0, sent_bytes - 66_000))  # a comment has at most 65,535 bytes
    tail = file.read()
    file.seek(0)
    at = tail.rfind(_END)
    size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    locator = tail.rfind(_END64_LOCATOR, 0, max(at, 0))
    if locator >= 0:
        file.seek(int.from_bytes(tail[locator + 8 : locator + 16], "little"))
        size = max(size * (size != 2**32 - 1), int.from_bytes(file.read(56)[40:48], "little"))
        file.seek(0)
    if size > _DIRECTORY_BYTES * limits.members:
        raise ArchiveRefused(
            "too-many",
            f"The archive's directory has {amount(size)}; with {limits.members:,} entries, as "
            f"many as are read, it has at most {amount(_DIRECTORY_BYTES * limits.members)}.",
        )


def _opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    if info.compress_type == ZSTANDARD:
        return lambda: open_zstandard(archive, info)
    return lambda: archive.open(info)


def _check_overlap(infos: Iterator[zipfile.ZipInfo]) -> None:
    """Members that share their bytes let a small archive hold one large file a thousand times."""
    end, last = 0, ""
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise ArchiveRefused(
                "overlap",
                f"{info.filename}: shares its bytes with {last}. Make the archive again.",
                info.filename,
            )
        end = info.header_offset + 30 + info.compress_size  # 30: the shortest local header
        last = info.filename


def _of_tar(file: BinaryIO, is_gzip: bool, limits: Limits, keep: Keep) -> Iterator[_Entry]:
    """Front to back. What the decompressor gives is bounded as a whole, headers included: the
    standard library reads extended headers of any size into memory.
    """
    raw: BinaryIO = gzip.GzipFile(fileobj=file) if is_gzip else file  # type: ignore[assignment]
    most = limits.total_bytes + 512 * _TAR_OVERHEAD * (limits.members + 16)
    bounded: Any = _Bounded(raw, most, limits)  # has the one method that is called
    tree, count = _Tree(), 0
    with _foreign(), tarfile.open(fileobj=bounded, mode="r|", errorlevel=2) as archive:
        for info in archive:
            count += 1
            _check_count(count, limits)
            path = safe_path(info.name)
            if not path or info.isdir() or not keep(path):
                continue
            if info.issym() or info.islnk():
                raise _link(info.name)
            if not info.isreg() or info.issparse():
                raise _special(info.name)
            tree.add(path, info.name)
            yield _Entry(path, info.name, _tar_opener(archive, info))


def _tar_opener(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        file = archive.extractfile(info)
        assert file is not None  # a regular file
        return file

    return opened


class _Bounded:
    """Reads of the decompressed tar; beyond the limit they raise."""

    def __init__(self, file: BinaryIO, left: int, limits: Limits) -> None:
        self._file, self._left, self._limits = file, left, limits

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveRefused(
                "too-large",
                f"The archive has more than {amount(self._limits.total_bytes)} unpacked, which is "
                "the limit.",
            )
        return data


class _Tree:
    """Paths seen so far: none twice, and no file where another has its folder."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, path: str, name: str) -> None:
        above = path.split("/")[:-1]
        folders = {"/".join(above[: i + 1]) for i in range(len(above))}
        if path in self._files:
            raise ArchiveRefused(
                "twice", f"{name}: is in the archive twice. Send each file once.", name
            )
        if path in self._folders or not folders.isdisjoint(self._files):
            raise ArchiveRefused("twice", f"{name}: is a file and a folder in the archive.", name)
        self._files.add(path)
        self._folders |= folders


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.members:
        raise ArchiveRefused(
            "too-many",
            f"The archive has {count:,} entries; at most {limits.members:,} are read. Leave out "
            "what does not belong to it.",
        )


def _link(name: str) -> ArchiveRefused:
    return ArchiveRefused(
        "link",
        f"{name}: is a link, and links are not followed. Put the file itself into the archive.",
        name,
    )


def _special(name: str) -> ArchiveRefused:
    return ArchiveRefused(
        "special-file", f"{name}: is neither a file nor a folder. Leave it out.", name
    )


@contextmanager
def _foreign(name: str = "") -> Iterator[None]:
    """What the standard library raises of damage becomes a refusal."""
    try:
        yield
    except ArchiveRefused:
        raise
    except _DAMAGED as error:
        what = f"{name}: cannot be read" if name else "The archive cannot be read"
        raise ArchiveRefused(
            "damaged", f"{what} ({str(error)[:120] or type(error).__name__}). Make it again.", name
        ) from error


@contextmanager
def _opened(source: bytes | BinaryIO | Path) -> Iterator[Any]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, Path):
        with source.open("rb") as file:
            yield file
    else:
        yield source


def _all(path: str) -> bool:
    return True
