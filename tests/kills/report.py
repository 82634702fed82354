"""The matrix as JSON lines while it runs, and as a table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.kills.matrix import Moment


def write_line(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(record) + "\n")


def moment_line(moment: Moment) -> dict[str, Any]:
    return {"moment": moment.number, "passed": moment.has_passed, **asdict(moment)}


def markdown(
    moments: Sequence[Moment],
    *,
    stack: str,
    seed: int,
    totals: Mapping[str, int],
    states: Mapping[str, Mapping[str, int]],
    troubles: Mapping[str, int],
    at_rest: Sequence[str],
    load: str,
) -> str:
    counted = [moment for moment in moments if moment.counts]
    passed = sum(moment.has_passed for moment in counted)
    times = sorted(m.recovered_s for m in counted if m.recovered_s is not None)
    lines = [
        f"{len(counted)} moments on `STACK={stack}`, seed {seed}: {passed} passed."
        f" Gone on after {_at(times, 0.5):.1f} s (median), {_at(times, 0.95):.1f} s (95 %),"
        f" {_at(times, 1.0):.1f} s (longest). {load}",
        "",
        "| # | activity | fault | hit | went on after | findings |",
        "|---|---|---|---|---|---|",
    ]
    for moment in moments:
        after = "–" if moment.recovered_s is None else f"{moment.recovered_s:.1f} s"
        after += " (ended)" if moment.is_over else ""
        hit = moment.hit or moment.note
        found = "; ".join(moment.findings) or "none"
        row = (str(moment.number), moment.activity, moment.fault, hit, after, found)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")
    acknowledged = ", ".join(f"{n} {name}" for name, n in totals.items())
    lines += ["", f"Acknowledged and looked for after each moment: {acknowledged}.", ""]
    lines += ["| ends | |", "|---|---|"]
    for name, ends in states.items():
        told = ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in ends.items())
        lines.append(f"| {name} | {told or 'none'} |")
    tries = ", ".join(f"{n} × {kind}" for kind, n in sorted(troubles.items())) or "none"
    lines += ["", f"Requests that the client had to send again: {tries}."]
    lines += ["", f"When all work had ended: {'; '.join(at_rest) or 'all invariants hold'}."]
    return "\n".join(lines) + "\n"


def _at(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")
