"""Processes of ours on this host that nobody of ours looks after any more.

A worker that is killed takes its children with it: each is told by the kernel, or ends when its
pipe closes. Where that fails, a server or a trainer holds memory and ports until somebody looks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHILDREN = re.compile(
    r"orchestrator\.environments\.(?:\w+\.server|sandbox\.(?:service|doorway))"
    r"|training\.(?:jobs\.(?:runner|launch)|lens|merge|tinker\.bridge)"
)
"""Modules that run only as children of a worker."""
_OURS = re.compile(r"manage\.py|orchestrator\.celery|orchestrator\.asgi|pytest|benchmarks|uvicorn")


@dataclass(frozen=True)
class Seen:
    pid: int
    parent: int
    command: str


def orphans(proc: Path = Path("/proc")) -> list[Seen] | None:
    """Children of workers without one above them; None where the system does not tell."""
    if not (proc / "self").exists():
        return None
    seen = {one.pid: one for one in _all(proc)}
    return [
        one
        for one in seen.values()
        if CHILDREN.search(one.command) and not _is_looked_after(one, seen)
    ]


def _is_looked_after(one: Seen, seen: Mapping[int, Seen]) -> bool:
    known: set[int] = set()
    above = seen.get(one.parent)
    while above is not None and above.pid not in known:
        if _OURS.search(above.command):
            return True
        known.add(above.pid)
        above = seen.get(above.parent)
    return False


def _all(proc: Path) -> list[Seen]:
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            # The name in brackets may hold anything; the parent stands behind its end.
            state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            is_own = folder.stat().st_uid == os.getuid() or os.getuid() == 0
        except OSError:
            continue  # it has just ended, or is not ours to read
        if is_own and words[0]:
            command = " ".join(word.decode(errors="replace") for word in words if word)
            found.append(Seen(int(folder.name), int(state[1]), command))
    return found
