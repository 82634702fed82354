"""Reads of what came from outside: reports, exports, the order in which it is shown."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.runs.models import Rollout
from orchestrator.traces.exact import Number, dump, parse
from orchestrator.traces.models import OutsideRollout
from orchestrator.traces.owners import digest
from orchestrator.traces.services import said_in


@dataclass(frozen=True)
class Told:
    """One event as the API tells it."""

    body: str
    """Strict JSON in ASCII, as it was sent."""
    seq: int
    started_at: datetime | None
    ended_at: datetime | None
    flags: Sequence[str]

    @property
    def duration_ms(self) -> float | None:
        """Null where an end is missing or before its start."""
        if self.started_at is None or self.ended_at is None or self.ended_at < self.started_at:
            return None
        return (self.ended_at - self.started_at).total_seconds() * 1_000

    def as_json(self) -> str:
        told = {
            "seq": Number(str(self.seq)),
            "started_at": stamp(self.started_at),
            "ended_at": stamp(self.ended_at),
            "duration_ms": None if (ms := self.duration_ms) is None else Number(f"{ms:.15g}"),
            "flags": list(self.flags),
        }
        return f'{{"event": {self.body}, "stored": {dump(told)}}}'


def stamp(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def outside_rollout(project_id: int, name: str) -> OutsideRollout | None:
    """By the producer's name."""
    return (
        OutsideRollout.objects.select_related("rollout")
        .filter(project_id=project_id, key=digest(dump(name)))
        .first()
    )


def outside_of(rollout: Rollout) -> OutsideRollout | None:
    """What a rollout is to its producer; None for one of our own."""
    return OutsideRollout.objects.filter(rollout=rollout).first()


def events_told(owner: OutsideRollout) -> Iterator[Told]:
    """In the order in which they are shown, with flat memory."""
    rows = owner.events.order_by("position", "seq").values_list(
        "body", "seq", "started_at", "ended_at", "flags"
    )
    for body, seq, started, ended, flags in rows.iterator(chunk_size=100):
        yield Told(body, seq, started, ended, flags)


def flags_of_rollout(owner: OutsideRollout) -> list[str]:
    """Of its events, and what only all of them together show."""
    rows = list(
        owner.events.order_by("position", "seq").values_list(
            "key", "parent_key", "started_at", "ended_at", "flags"
        )
    )
    flags = {flag for row in rows for flag in row[4]}
    parents = {key: parent for key, parent, *_ in rows}
    if any(parent and parent not in parents for parent in parents.values()):
        flags.add("missing_parent")
    if _has_cycle(parents):
        flags.add("parent_cycle")
    latest: datetime | None = None
    for _, _, started, ended, _ in rows:
        if ended is None:
            flags.add("unfinished")
        if started is not None and ended is not None and ended < started:
            flags.add("clock_went_back")
        if started is not None:
            if latest is not None and started < latest:
                flags.add("clock_went_back")
            latest = started
    return sorted(flags)


def _has_cycle(parents: dict[str, str]) -> bool:
    sound: set[str] = set()
    for key in parents:
        path: list[str] = []
        on_path: set[str] = set()
        while key and key in parents and key not in sound:
            if key in on_path:
                return True
            path.append(key)
            on_path.add(key)
            key = parents[key]
        sound.update(path)
    return False


def means_of(owner: OutsideRollout) -> dict[str, float | None]:
    """Mean of each metric over the finite values of `data.values`; null where there is none."""
    values: dict[str, list[float]] = defaultdict(list)
    for told in events_told(owner):
        data = parse(told.body).get("data")
        metrics = data.get("values") if isinstance(data, dict) else None
        for name, value in metrics.items() if isinstance(metrics, dict) else ():
            found = values[name]
            if isinstance(value, Number) and math.isfinite(number := float(value.token)):
                found.append(number)
    return {name: sum(v) / len(v) if v else None for name, v in values.items()}


# Exports

CSV_FIELDS = ("id", "parent", "seq", "kind", "name", "started_at", "ended_at", "content", "data")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(owner: OutsideRollout) -> Iterator[str]:
    """Cells that a spreadsheet would calculate begin with an apostrophe."""
    yield _csv_line(CSV_FIELDS)
    for told in events_told(owner):
        event = parse(told.body)
        cells = [
            value if isinstance(value := event.get(name), str) else said_in(value)
            for name in CSV_FIELDS
        ]
        yield _csv_line([safe_cell(cell) for cell in cells])


def safe_cell(text: str) -> str:
    """A cell that is text in every spreadsheet, and that UTF-8 can carry."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return f"'{text}" if text.startswith(_FORMULA) else text


def _csv_line(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def jsonl_lines(owner: OutsideRollout) -> Iterator[str]:
    """The events as they were sent, one a line."""
    for told in events_told(owner):
        yield f"{told.body}\n"
