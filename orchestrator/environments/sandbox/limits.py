"""What a command may use, what this machine offers, and how a command ended: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NOBODY = 65534
OPT_OUT_VARIABLE = "SWITCHBACK_UNSANDBOXED"
TASK_FOLDER = "/task"
"""Where a command finds its files, and its working directory."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one command. Named in the observation when they strike."""

    wall_s: float = 5.0
    cpu_s: int = 5
    memory_bytes: int = 128 * 2**20
    """Address space of each process; 24 processes of this size fit a machine of 4 GiB."""
    tree_memory_bytes: int = 256 * 2**20
    """Memory of all its processes together, files in its `/tmp` included; needs control groups."""
    processes: int = 24
    file_bytes: int = 8 * 2**20
    folder_bytes: int = 32 * 2**20
    """All files of the task's folder together, measured after each command."""
    tmp_bytes: int = 16 * 2**20
    output_bytes: int = 4096
    flood_bytes: int = 2**20
    """A command that printed this much is ended: nobody will read it."""


@dataclass(frozen=True)
class Isolation:
    """What this machine offers. `available` is false where commands must not run."""

    available: bool
    reason: str
    hint: str = ""
    mode: Literal["bubblewrap", "unsandboxed", "none"] = "none"
    options: tuple[str, ...] = ()
    """Further bubblewrap options that this machine's version and kernel take."""
    has_proc: bool = True
    has_filter: bool = False
    """System calls are filtered."""
    drops_root: bool = False
    """Started by root, commands run as another user on the host too."""


@dataclass(frozen=True)
class CommandResult:
    """One command's end."""

    output: bytes
    """Standard output and error as they came, at most `Limits.output_bytes`."""
    exit_status: int
    """As a shell reports it: 128 + signal for a killed command; 137 when a limit ended it."""
    is_truncated: bool
    warning: str
    """The limits that it met, in words; empty if none."""
    duration_s: float
