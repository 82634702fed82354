"""Builds the fault library and moves its switch."""

from __future__ import annotations

import mmap
import struct
import subprocess
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


class Disk(IntEnum):
    SOUND = 0
    FULL = 1
    READ_ONLY = 2
    SLOW = 3


class Shim:
    """For processes started with `environ`; they hear of a change at their next call."""

    def __init__(self, folder: Path, *, concerns: Path) -> None:
        """`folder` holds library and switch, and must not lie below `concerns`."""
        self._library, switch = folder / "shim.so", folder / "shim.switch"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"],
            check=True,
        )
        switch.write_bytes(bytes(32))
        self._file = switch.open("r+b")
        self._page = mmap.mmap(self._file.fileno(), 32)
        self.environ = {
            "LD_PRELOAD": str(self._library),
            "FAULT_SHIM_CONTROL": str(switch),
            "FAULT_SHIM_FOLDER": f"{concerns}/",
        }

    def set(self, disk: Disk = Disk.SOUND, *, write_us: int = 0, clock_s: int = 0) -> None:
        self._page[:] = struct.pack("=4q", disk, write_us, clock_s, 0)

    def close(self) -> None:
        self._page.close()
        self._file.close()
