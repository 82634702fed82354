"""What stands in the way of publishing a rubric, and what a reader of it would advise. Pure.

Both name the criterion and the field that they are about, so that a page can show them where they
belong. Each criterion is read by itself too: one that is unfinished must not hide what is wrong
with its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rubrics.codec import from_json
from rubrics.errors import RubricInvalid
from rubrics.lint import lint
from rubrics.types import Criterion, RubricSpec

_AT = re.compile(r"(criteria|groups)\[(\d+)\]\.?([\w.]*): (.*)", re.DOTALL)
_FIELD = re.compile(r"([\w.]+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class Note:
    """A problem, or a finding of the linter."""

    level: str
    """`problem`, `warning` or `advice`"""
    text: str
    criterion: str = ""
    """Its id; empty for the rubric as a whole."""
    group: str = ""
    field: str = ""
    """`params.question` for a parameter."""
    code: str = ""
    fix: str = ""

    @property
    def label(self) -> str:
        return self.field.removeprefix("params.").replace("_", " ")


@dataclass(frozen=True)
class Reading:
    spec: RubricSpec | None
    """None while there are problems."""
    problems: Sequence[Note]
    findings: Sequence[Note]


def read(data: Mapping[str, Any]) -> Reading:
    """Of a rubric that may be unfinished."""
    listed = data.get("criteria")
    criteria = [c for c in listed if isinstance(c, Mapping)] if isinstance(listed, list) else []
    spec: RubricSpec | None = None
    try:
        spec = from_json(data)
        problems: list[Note] = []
    except RubricInvalid as invalid:
        problems = [_note(line, data) for line in invalid.problems]
    good: list[Criterion] = []
    for criterion in criteria:
        alone, own = _alone(criterion)
        problems += [note for note in own if note not in problems]
        good += [alone] if alone is not None else []
    found = lint(spec or RubricSpec(criteria=tuple(good))) if good else []
    findings = [
        Note(f.severity.value, f.message, f.criterion, "", f.field, f.code, f.fix)
        for f in found
        # What is said of the whole holds for all of it, not for the part that can be read so far.
        if spec is not None or f.criterion
    ]
    return Reading(spec, problems, findings)


def criterion_alone(criterion: Mapping[str, Any]) -> Criterion | None:
    """One criterion without its group, whatever stands beside it; None if it cannot be graded."""
    return _alone(criterion)[0]


def problems_alone(criterion: Mapping[str, Any]) -> list[Note]:
    """What keeps one criterion from being graded, whatever stands beside it."""
    return _alone(criterion)[1]


def _alone(data: Mapping[str, Any]) -> tuple[Criterion | None, list[Note]]:
    # A rubric needs something that can be earned.
    earning = {"id": f"not-{data.get('id')}"[:64].lower(), "kind": "environment_reward"}
    lonely = {"criteria": [{**data, "group": ""}, earning]}
    try:
        return from_json(lonely).criteria[0], []
    except RubricInvalid as invalid:
        return None, [_note(line, lonely) for line in invalid.problems if "criteria[1]" not in line]


def _note(line: str, data: Mapping[str, Any]) -> Note:
    at = _AT.fullmatch(line)
    if at is None:
        field = _FIELD.fullmatch(line)
        name, text = field.groups() if field else ("", line)
        return Note("problem", text, field=name)
    part, number, field_name, text = at.groups()
    items = data.get(part) or ()
    item = items[int(number)] if int(number) < len(items) else {}
    id = str(item.get("id", "")) if isinstance(item, Mapping) else ""
    return Note(
        "problem",
        text,
        criterion=id if part == "criteria" else "",
        group=id if part == "groups" else "",
        field=field_name,
    )
