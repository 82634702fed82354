"""The processes of the installation, for the page of operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.processes.beating import database_clock
from orchestrator.processes.models import Process
from orchestrator.processes.queries import living, silent

_ORDER = {"web": 0, "worker": 1, "sweep": 2}


@dataclass(frozen=True)
class ProcessRow:
    process: Process
    is_silent: bool
    memory_mb: int | None
    silent_s: float
    """Since its last sign of life, by the database's clock."""


def process_rows() -> list[ProcessRow]:
    now, _ = database_clock()

    def row(process: Process, *, is_silent: bool) -> ProcessRow:
        memory_mb = None if is_silent else _memory_mb(process.measures)
        silent_s = round(max(0.0, (now - process.seen_at).total_seconds()))
        return ProcessRow(process, is_silent, memory_mb, silent_s)

    rows = [row(one, is_silent=False) for one in living()]
    rows += [row(one, is_silent=True) for one in silent()]
    return sorted(rows, key=lambda row: (row.is_silent, _ORDER.get(row.process.kind, 9)))


def _memory_mb(measures: list[dict[str, Any]]) -> int | None:
    for family in measures:
        if family["name"] == "switchback_process_resident_bytes":
            return next((int(value) // 2**20 for _, _, value in family["samples"]), None)
    return None
