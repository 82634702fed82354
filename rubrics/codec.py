"""Rubrics as JSON: reading with complete complaints, writing in one canonical form, and the hash
of that form.

A field that has its default is not written. So a field that is added later, with a default that
means what was meant before, changes neither the text nor the hash of the versions that exist.
`format` counts changes that a reader must know about; readers accept older ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from rubrics.errors import RubricInvalid
from rubrics.kinds import KINDS
from rubrics.types import Aggregation, Applicability, Criterion, Group, RubricSpec, Scope

FORMAT = 1
ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_CRITERIA = 200


def from_json(data: Any) -> RubricSpec:
    """A rubric from parsed JSON.

    Raises RubricInvalid with every problem found, each naming its field.
    """
    if not isinstance(data, Mapping):
        raise RubricInvalid("rubric: accepts an object")
    problems: list[str] = []
    if data.get("format", FORMAT) != FORMAT:
        raise RubricInvalid(f"format: {data['format']!r} is unknown; accepts {FORMAT}")
    values = _take(data, RubricSpec, _RUBRIC_FIELDS, "", problems, also=("format",))
    groups = _groups(data.get("groups", ()), problems)
    listed = data.get("criteria")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        problems.append("criteria: accepts a list of at least one criterion")
        raise RubricInvalid(*problems)
    if len(listed) > MAX_CRITERIA:
        raise RubricInvalid(f"criteria: {len(listed)} given; accepts at most {MAX_CRITERIA}")
    criteria = [_criterion(item, f"criteria[{i}].", problems) for i, item in enumerate(listed)]
    if problems:
        raise RubricInvalid(*problems)
    spec = RubricSpec(criteria=tuple(c for c in criteria if c is not None), groups=groups, **values)
    validate(spec)
    return spec


def validate(spec: RubricSpec) -> None:
    """Raises RubricInvalid if the rubric cannot be graded as written; for rubrics built in code."""
    problems: list[str] = []
    seen: set[str] = set()
    for i, criterion in enumerate(spec.criteria):
        at = f"criteria[{i}]."
        if criterion.id in seen:
            problems.append(f"{at}id: {criterion.id!r} is used twice")
        seen.add(criterion.id)
        if not ID.fullmatch(criterion.id):
            problems.append(f"{at}id: {criterion.id!r}; accepts a-z, 0-9, - and _, at most 64")
        if criterion.weight not in range(1, 11):
            problems.append(f"{at}weight: {criterion.weight!r}; accepts whole numbers from 1 to 10")
        if not 0.0 <= criterion.threshold <= 1.0:
            problems.append(f"{at}threshold: {criterion.threshold!r}; accepts 0 to 1")
        if criterion.required and criterion.threshold == 0.0 and not criterion.negative:
            problems.append(f"{at}threshold: 0 is always reached; a required one accepts above 0")
        if criterion.kind in KINDS:
            problems += [at + line for line in KINDS[criterion.kind].problems(criterion)]
        else:
            problems.append(f"{at}kind: {criterion.kind!r}; accepts {', '.join(KINDS)}")
    problems += _group_problems(spec)
    if not any(not criterion.negative for criterion in spec.criteria):
        problems.append("criteria: at least one must not be negative, or nothing can be earned")
    if problems:
        raise RubricInvalid(*problems)


def _group_problems(spec: RubricSpec) -> list[str]:
    problems: list[str] = []
    known: set[str] = set()
    for i, group in enumerate(spec.groups):
        at = f"groups[{i}]."
        if group.id in known:
            problems.append(f"{at}id: {group.id!r} is used twice")
        known.add(group.id)
        if not ID.fullmatch(group.id):
            problems.append(f"{at}id: {group.id!r}; accepts a-z, 0-9, - and _, at most 64")
        if group.weight not in range(1, 11):
            problems.append(f"{at}weight: {group.weight!r}; accepts whole numbers from 1 to 10")
        if not 0.0 <= group.threshold <= 1.0:
            problems.append(f"{at}threshold: {group.threshold!r}; accepts 0 to 1")
        if not any(c.group == group.id and not c.negative for c in spec.criteria):
            problems.append(f"{at}id: {group.id!r} has no criterion that can be earned")
    for i, criterion in enumerate(spec.criteria):
        if criterion.group and criterion.group not in known:
            accepts = ", ".join(sorted(known)) or "no group: the rubric has none"
            problems.append(f"criteria[{i}].group: {criterion.group!r}; accepts {accepts}")
    return problems


def to_json(spec: RubricSpec) -> dict[str, Any]:
    return {"format": FORMAT, **_dump(spec)}


def canonical_text(spec: RubricSpec) -> str:
    return json.dumps(
        to_json(spec), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def content_hash(spec: RubricSpec) -> str:
    """SHA-256 of the canonical text; 1 and 1.0 in a parameter are different texts."""
    return hashlib.sha256(canonical_text(spec).encode()).hexdigest()


# --- writing


def _dump(value: Any) -> dict[str, Any]:
    return {
        item.name: _plain(getattr(value, item.name))
        for item in fields(value)
        if getattr(value, item.name) != _default(item)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Criterion | Applicability | Group):
        return _dump(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _default(item: Field[Any]) -> Any:
    if item.default is not MISSING:
        return item.default
    return MISSING if item.default_factory is MISSING else item.default_factory()


# --- reading

Reader = tuple[str, Callable[[Any], Any]]
"""What a field accepts in words, and a function that returns the value or raises ValueError."""


def _criterion(data: Any, at: str, problems: list[str]) -> Criterion | None:
    if not isinstance(data, Mapping):
        problems.append(f"{at.rstrip('.')}: accepts an object")
        return None
    before = len(problems)
    values = _take(data, Criterion, _CRITERION_FIELDS, at, problems)
    for name in ("id", "kind"):
        if name not in data:
            problems.append(f"{at}{name}: required")
    return Criterion(**values) if len(problems) == before else None


def _groups(data: Any, problems: list[str]) -> tuple[Group, ...]:
    if not isinstance(data, Sequence) or isinstance(data, str):
        problems.append("groups: accepts a list")
        return ()
    groups = []
    for i, item in enumerate(data):
        at = f"groups[{i}]."
        if not isinstance(item, Mapping):
            problems.append(f"groups[{i}]: accepts an object")
            continue
        before = len(problems)
        values = _take(item, Group, _GROUP_FIELDS, at, problems)
        if "id" not in item:
            problems.append(f"{at}id: required")
        if len(problems) == before:
            groups.append(Group(**values))
    return tuple(groups)


def _take(
    data: Mapping[str, Any],
    cls: type[Any],
    readers: Mapping[str, Reader],
    at: str,
    problems: list[str],
    also: tuple[str, ...] = (),
) -> dict[str, Any]:
    known = {item.name for item in fields(cls)} | set(also)
    for name in data:
        if name not in known:
            problems.append(f"{at}{name}: unknown; accepts {', '.join(sorted(known))}")
    values = {}
    for name, (accepts, read) in readers.items():
        if name not in data:
            continue
        try:
            values[name] = read(data[name])
        except (ValueError, TypeError):
            problems.append(f"{at}{name}: {data[name]!r}; accepts {accepts}")
    return values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise ValueError
    return float(value)


def _params(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    json.dumps(value, allow_nan=False)  # NaN and what is not JSON must not reach a version
    return dict(value)


def _applies(value: Any) -> Applicability:
    if not isinstance(value, Mapping) or set(value) - {"labels", "answered", "min_steps"}:
        raise ValueError
    labels = value.get("labels", {})
    if not isinstance(labels, Mapping) or any(isinstance(v, str) for v in labels.values()):
        raise ValueError
    answered = value.get("answered")
    return Applicability(
        labels={_text(k): tuple(_text(x) for x in v) for k, v in labels.items()},
        answered=None if answered is None else _flag(answered),
        min_steps=_whole(value.get("min_steps", 0)),
    )


_FLAG: Reader = ("true or false", _flag)
_SHARE: Reader = ("0 to 1", _share)

_CRITERION_FIELDS: Mapping[str, Reader] = {
    "id": ("text", _text),
    "kind": ("text", _text),
    "name": ("text", _text),
    "params": ("an object of finite numbers and texts", _params),
    "weight": ("whole numbers from 1 to 10", _whole),
    "required": _FLAG,
    "negative": _FLAG,
    "threshold": _SHARE,
    "gate": _FLAG,
    "scope": (", ".join(Scope), Scope),
    "applies": ("labels (name to list of texts), answered, min_steps", _applies),
    "group": ("text", _text),
}
_GROUP_FIELDS: Mapping[str, Reader] = {
    "id": ("text", _text),
    "name": ("text", _text),
    "aggregation": (", ".join(Aggregation), Aggregation),
    "weight": ("whole numbers from 1 to 10", _whole),
    "threshold": _SHARE,
}
_RUBRIC_FIELDS: Mapping[str, Reader] = {
    "aggregation": (", ".join(Aggregation), Aggregation),
    "pass_threshold": _SHARE,
    "min_coverage": _SHARE,
}
