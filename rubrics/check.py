"""`python -m rubrics.check FILE`: reads judge replies and compares with what is expected.

The file is a JSON list of {id, criterion: {kind, min, max, allows_na}, reply, expect: {state,
value?, reason_kind?}}. Prints a line for each case that differs and a summary; exit code 1 if any
does, 2 if the file cannot be used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rubrics.judge.reply import read_reply
from rubrics.judge.scale import Reading, Scale

TOLERANCE = 1e-9


def differences(case: Mapping[str, Any]) -> list[str]:
    """What the reader says otherwise than the case expects; empty if nothing."""
    criterion, expect = case["criterion"], case["expect"]
    scale = Scale(
        kind=criterion["kind"],
        min=criterion["min"],
        max=criterion["max"],
        allows_na=criterion["allows_na"],
    )
    reading = read_reply(scale, case["reply"])
    found = [] if reading.state.value == expect["state"] else [f"state {reading.state.value}"]
    if "value" in expect and not _is_close(reading, expect["value"]):
        found.append(f"value {reading.value!r}")
    problem = reading.problem.value if reading.problem else None
    if "reason_kind" in expect and problem != expect["reason_kind"]:
        found.append(f"reason_kind {problem}")
    return found


def _is_close(reading: Reading, value: float) -> bool:
    return reading.value is not None and abs(reading.value - value) <= TOLERANCE


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m rubrics.check FILE", file=sys.stderr)
        return 2
    try:
        cases = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        failed = {case["id"]: found for case in cases if (found := differences(case))}
    except (OSError, ValueError, KeyError, TypeError) as exc:
        print(f"rubrics.check: {arguments[0]}: {exc}", file=sys.stderr)
        return 2
    for name, found in failed.items():
        print(f"{name}: {', '.join(found)}")
    print(f"{len(cases) - len(failed)} of {len(cases)} cases as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
