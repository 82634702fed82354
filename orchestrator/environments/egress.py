"""The decisions of egress proxies: from the files of servers into the database.

A server's proxy appends to a file in the version's folder on its machine. `collect` reads what is
new there; two workers that collect at once, or a worker that is killed in between, lose and double
nothing, for the place in the file moves in the same transaction.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.db import transaction

from orchestrator.environments.models import EgressDecision, EgressLog, EnvironmentVersion
from orchestrator.environments.serving import data_folder

FILES = "decisions*.jsonl"
"""In the folder that a kind gives to the version's servers."""
READ_BYTES = 4 * 2**20
"""At a time; more is read in the next turn of the loop."""
KEPT = 20_000
"""Decisions of a version. A server that asks without end must not fill the database."""
PAGE = 50


@dataclass(frozen=True)
class EgressPage:
    """One page of decisions, newest first."""

    decisions: list[EgressDecision]
    before: int | None
    """Key of the next page; None on the last one."""
    n_allowed: int
    n_denied: int


def collect(version: EnvironmentVersion) -> int:
    """Store what this machine's files of the version hold and the database does not.

    How many decisions were new. Safe to call at any time, more than once.
    """
    folder = data_folder() / f"v{version.pk}"
    stored = sum(_collect_file(version, path) for path in sorted(folder.glob(FILES)))
    if stored:
        _drop_oldest(version.pk)
    return stored


def egress_page(
    version_id: int, *, action: str = "", text: str = "", before: int | None = None
) -> EgressPage:
    """What a version's servers asked for. `action`: allow or deny; `text`: part of a host."""
    every = EgressDecision.objects.filter(version_id=version_id)
    found = every
    if action:
        found = found.filter(action=action)
    if text:
        found = found.filter(host__icontains=text)
    if before is not None:
        found = found.filter(pk__lt=before)
    rows = list(found.order_by("-pk")[: PAGE + 1])
    return EgressPage(
        decisions=rows[:PAGE],
        before=rows[PAGE - 1].pk if len(rows) > PAGE else None,
        n_allowed=every.filter(action="allow").count(),
        n_denied=every.filter(action="deny").count(),
    )


def _collect_file(version: EnvironmentVersion, path: Path) -> int:
    # No more than the column takes; the end of a path tells more than its start.
    place = f"{socket.gethostname()}:{path.resolve()}"[-300:]
    log, _ = EgressLog.objects.get_or_create(version=version, place=place)
    stored = 0
    while True:
        offset = log.offset_bytes
        # A file that was begun anew is read from its start.
        start = offset if path.stat().st_size >= offset else 0
        with path.open("rb") as file:
            file.seek(start)
            chunk = file.read(READ_BYTES)
        # A line that is being written is left for the next time.
        whole = chunk[: chunk.rfind(b"\n") + 1]
        if not whole:
            return stored
        rows = [_row(version.pk, line) for line in whole.splitlines()]
        with transaction.atomic():
            moved = EgressLog.objects.filter(pk=log.pk, offset_bytes=offset).update(
                offset_bytes=start + len(whole)
            )
            if not moved:  # somebody else has read it
                return stored
            found = [row for row in rows if row is not None]
            EgressDecision.objects.bulk_create(found)
        stored += len(found)
        log.offset_bytes = start + len(whole)


def _row(version_id: int, line: bytes) -> EgressDecision | None:
    """None for a line that our proxy has not written."""
    try:
        value: Mapping[str, Any] = json.loads(line)
        return EgressDecision(
            version_id=version_id,
            at=datetime.fromtimestamp(float(value["t"]), UTC),
            host=str(value["host"])[:255],
            port=max(0, int(value["port"])),
            method=str(value["method"])[:16],
            action="allow" if value["action"] == "allow" else "deny",
            reason=str(value["reason"])[:200],
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _drop_oldest(version_id: int) -> None:
    every = EgressDecision.objects.filter(version_id=version_id)
    last = every.order_by("-pk").values_list("pk", flat=True)[KEPT : KEPT + 1].first()
    if last is not None:
        every.filter(pk__lte=last).delete()
