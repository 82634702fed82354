"""The processes of the installation, for the page of operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.processes.models import Process
from orchestrator.processes.queries import living, silent

_ORDER = {"web": 0, "worker": 1, "sweep": 2}


@dataclass(frozen=True)
class ProcessRow:
    process: Process
    is_silent: bool
    memory_mb: int | None

    @property
    def seen_at(self) -> datetime:
        return self.process.seen_at


def process_rows() -> list[ProcessRow]:
    rows = [ProcessRow(one, False, _memory_mb(one.measures)) for one in living()]
    rows += [ProcessRow(one, True, None) for one in silent()]
    return sorted(rows, key=lambda row: (row.is_silent, _ORDER.get(row.process.kind, 9)))


def _memory_mb(measures: list[dict[str, Any]]) -> int | None:
    for family in measures:
        if family["name"] == "switchback_process_resident_bytes":
            return next((int(value) // 2**20 for _, _, value in family["samples"]), None)
    return None
