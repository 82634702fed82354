"""Tables of tasks as text that `rows` reads back as the same tasks. Pure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.environments.authoring.values import to_text
from orchestrator.environments.kinds import Kind
from orchestrator.environments.services import NewTask

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""What a spreadsheet would take for a formula, behind any apostrophes that are there already."""
LEADING = ("key", "split", "group", "difficulty", "prompt")
TRAILING = ("limits", "seeds", "reference")


def jsonl_lines(kind: Kind, tasks: Iterable[NewTask]) -> Iterator[str]:
    """One task a line; what is not set is left out."""
    for task in tasks:
        yield json.dumps(record_of(kind, task), ensure_ascii=False) + "\n"


def record_of(kind: Kind, task: NewTask) -> dict[str, Any]:
    own = {field.name for field in kind.task_fields} - _taken()
    spec = task.spec or {}
    rest = {name: value for name, value in spec.items() if name not in own}
    record = {
        "key": task.key,
        "split": task.split,
        "group": task.family,
        "difficulty": task.difficulty,
        "prompt": task.prompt,
        **{name: value for name, value in spec.items() if name in own},
        "reset": _reset(kind, task),
        "limits": task.limits,
        "seeds": task.seeds,
        "reference": task.reference,
        "spec": rest,
    }
    always = ("key", "split", "prompt")
    return {
        name: value
        for name, value in record.items()
        if name in always or name in own or value not in (None, "", {}, [])
    }


def _taken() -> set[str]:
    return {*LEADING, *TRAILING, "reset", "spec", "family"}


def _reset(kind: Kind, task: NewTask) -> dict[str, Any]:
    """Without what the key says already."""
    reset = dict(task.reset or {})
    if kind.resets_by_key and reset.get("task") == task.key:
        del reset["task"]
    return reset


def csv_lines(kind: Kind, tasks: Iterable[NewTask]) -> Iterator[str]:
    """A header, then one task a record. Cells that a spreadsheet would run get an apostrophe."""
    own = [field for field in kind.task_fields if field.name not in _taken()]
    yield _csv_line([*LEADING, *(field.name for field in own), "reset", *TRAILING, "spec"])
    for task in tasks:
        spec = task.spec or {}
        rest = {k: v for k, v in spec.items() if k not in {field.name for field in own}}
        cells = [
            *(task.key, task.split, task.family),
            "" if task.difficulty is None else json.dumps(task.difficulty),
            task.prompt,
            *(to_text(field, spec.get(field.name)) for field in own),
            *(
                json.dumps(value, ensure_ascii=False) if value else ""
                for value in (_reset(kind, task), task.limits, task.seeds, task.reference, rest)
            ),
        ]
        yield _csv_line([guarded(cell) for cell in cells])


def guarded(cell: str) -> str:
    """Behind an apostrophe where a spreadsheet would run it."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


def _csv_line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()
