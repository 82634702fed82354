"""Archives made to do harm, each around one innocent file. For the tests of every door."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Mapping

Files = Mapping[str, bytes]


def zip_of(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def tar_of(files: Files, more: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in more:
            archive.addfile(info)
    return out.getvalue()


def _nul(files: Files) -> bytes:
    """`zipfile` cuts names at a NUL when it writes."""
    return zip_of({**files, "evil.md!.png": b"x"}).replace(b"evil.md!.png", b"evil.md\0.png")


def _named(name: str) -> Callable[[Files], bytes]:
    return lambda files: zip_of({**files, name: b"x"})


def _twice(files: Files) -> bytes:
    out = io.BytesIO()
    name, content = next(iter(files.items()))
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        archive.writestr(name, content)
        archive.writestr(name, b"another")
    return out.getvalue()


def _special(kind: int) -> Callable[[Files], bytes]:
    def made(files: Files) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
            entry = zipfile.ZipInfo("odd")
            entry.external_attr = (kind | 0o777) << 16
            archive.writestr(entry, "/etc/passwd")
        return out.getvalue()

    return made


def _encrypted(files: Files) -> bytes:
    content = bytearray(zip_of(files))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def _overlapping(files: Files) -> bytes:
    """Two entries of the directory show to the same bytes."""
    name, content = next(iter(files.items()))
    other = "z" * len(name)
    packed = zip_of({name: content, other: content})
    at = packed.rindex(b"PK\x01\x02")
    return packed[: at + 42] + struct.pack("<I", 0) + packed[at + 46 :]


def _directory_of_gigabytes(files: Files) -> bytes:
    content = bytearray(zip_of(files))
    at = content.rindex(b"PK\x05\x06")
    content[at + 12 : at + 16] = struct.pack("<I", 2**31)
    return bytes(content)


ZIPS: dict[str, tuple[str, Callable[[Files], bytes]]] = {
    "parent folder": ("outside", _named("../evil.md")),
    "parent folder further down": ("outside", _named("skills/../../evil.md")),
    "parent folder of Windows": ("outside", _named("..\\evil.md")),
    "absolute": ("outside", _named("/etc/evil.md")),
    "drive": ("outside", _named("C:/evil.md")),
    "drive without a separator": ("outside", _named("C:evil.md")),
    "share": ("outside", _named("\\\\host\\evil.md")),
    "NUL in a name": ("name", _nul),
    "line break in a name": ("name", _named("evil\n.md")),
    "name too long": ("name", _named("e" * 300)),
    "twice": ("twice", _twice),
    "link": ("link", _special(stat.S_IFLNK)),
    "device": ("special-file", _special(stat.S_IFBLK)),
    "pipe": ("special-file", _special(stat.S_IFIFO)),
    "encrypted": ("encrypted", _encrypted),
    "bzip2": ("compression", lambda files: zip_of(files, zipfile.ZIP_BZIP2)),
    "lzma": ("compression", lambda files: zip_of(files, zipfile.ZIP_LZMA)),
    "overlapping": ("overlap", _overlapping),
    "a directory of gigabytes": ("too-many", _directory_of_gigabytes),
    "not an archive": ("not-an-archive", lambda files: b"PK\x03\x04 but not really"),
    "cut": ("not-an-archive", lambda files: zip_of(files)[:-30]),
}
"""Name → code of the refusal, and what makes the archive around the files of a door.

The files come first where it matters, so that a door cannot pass by refusing what is missing.
"""


def _tar_twice(files: Files) -> bytes:
    return tar_of(files, (tarfile.TarInfo(next(iter(files))),))


def _tar_kind(kind: bytes) -> Callable[[Files], bytes]:
    def made(files: Files) -> bytes:
        info = tarfile.TarInfo("odd")
        info.type, info.linkname = kind, "/etc/passwd"
        return tar_of(files, (info,))

    return made


TARS: dict[str, tuple[str, Callable[[Files], bytes]]] = {
    "parent folder": ("outside", lambda files: tar_of({**files, "../evil": b"x"})),
    "absolute": ("outside", lambda files: tar_of({**files, "/etc/evil": b"x"})),
    "link": ("link", _tar_kind(tarfile.SYMTYPE)),
    "hard link": ("link", _tar_kind(tarfile.LNKTYPE)),
    "device": ("special-file", _tar_kind(tarfile.BLKTYPE)),
    "pipe": ("special-file", _tar_kind(tarfile.FIFOTYPE)),
    "twice": ("twice", _tar_twice),
    "packed link": ("link", lambda files: gzip.compress(_tar_kind(tarfile.SYMTYPE)(files))),
}
