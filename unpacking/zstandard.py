"""Members of a zip that are packed by Zstandard (method 93), as logs of Inspect are.

The standard library reads them from Python 3.14 on; here the raw bytes of the member go through
the backport of that reader, with the window bounded: a frame may ask for gigabytes of memory.
"""

from __future__ import annotations

import io
import zipfile
from typing import IO, BinaryIO, cast

from backports.zstd import DecompressionParameter, ZstdError, ZstdFile

ZSTANDARD = 93
_WINDOW_LOG = 27
"""128 MiB, what `zstd --long` takes without being told."""
_LOCAL_HEADER_BYTES = 30


def open_zstandard(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """Raises ValueError, here and while it is read."""
    file = cast(BinaryIO, archive.fp)
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    if len(header) < _LOCAL_HEADER_BYTES or header[:4] != b"PK\x03\x04":
        raise ValueError("a member's header is not where the directory says")
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    start = info.header_offset + _LOCAL_HEADER_BYTES + names
    packed = io.BufferedReader(_Part(file, start, info.compress_size))
    options = {int(DecompressionParameter.window_log_max): _WINDOW_LOG}
    return cast(IO[bytes], _Reader(ZstdFile(packed, options=options)))


class _Part(io.RawIOBase):
    """So many bytes of a file from a place on."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._at, self._end = file, start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # as the base calls it
        self._file.seek(self._at)
        data = self._file.read(min(len(buffer), self._end - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Reader:
    """The file with errors that whoever reads archives expects."""

    def __init__(self, file: ZstdFile) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)
        except (ZstdError, EOFError) as error:
            raise ValueError(f"Zstandard: {error}") from error

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
