"""What differs between two rubrics, criterion by criterion. Pure.

Criteria and groups are matched by their ids, which renaming keeps; so a criterion that moved or was
renamed is told as that, not as one gone and another come. A field that is left out and one that
holds its default are the same. Either side may be unfinished: what has no id is matched by nothing
and told as added or removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from orchestrator.environments.authoring.diff import Piece, as_text, pieces
from rubrics.types import Criterion, Group, RubricSpec

Json = Mapping[str, Any]

_CRITERION = asdict(Criterion(id="", kind=""))
_GROUP = asdict(Group(id=""))
_RUBRIC = asdict(RubricSpec(criteria=()))
_EARLIER_FIRST = ("name", "kind", "weight")
"""Fields that a reader looks for first; the rest follows by name."""


class What(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True)
class FieldChange:
    name: str
    """`params.question` for a parameter."""
    before: str
    after: str

    @property
    def label(self) -> str:
        return self.name.removeprefix("params.").replace("_", " ")

    @property
    def pieces(self) -> list[Piece]:
        return pieces(self.before, self.after)


@dataclass(frozen=True)
class ItemChange:
    """Of one criterion or group."""

    id: str
    label: str
    what: What
    fields: Sequence[FieldChange] = ()
    """Of an added or removed one: all that it says."""


@dataclass(frozen=True)
class RubricDiff:
    criteria: Sequence[ItemChange] = ()
    """In the order of the later side; removed ones stand last."""
    groups: Sequence[ItemChange] = ()
    fields: Sequence[FieldChange] = ()
    """How the score is made."""
    n_same: int = 0
    """Criteria that are as they were."""

    @property
    def is_empty(self) -> bool:
        return not (self.criteria or self.groups or self.fields)

    @property
    def n_changes(self) -> int:
        return len(self.criteria) + len(self.groups) + bool(self.fields)


def difference(before: Json, after: Json) -> RubricDiff:
    criteria = _items(before, after, "criteria", _CRITERION)
    groups = _items(before, after, "groups", _GROUP)
    known = {"format", "criteria", "groups"}
    fields = _fields(before, after, _RUBRIC, leave_out=known)
    changed = {item.id for item in criteria if item.what is not What.REMOVED}
    n_same = sum(item.get("id") not in changed for item in _listed(after, "criteria"))
    return RubricDiff(criteria, groups, fields, n_same)


def _items(before: Json, after: Json, key: str, defaults: Json) -> list[ItemChange]:
    one, two = _listed(before, key), _listed(after, key)
    old = {str(item.get("id", "")): item for item in one}
    new = {str(item.get("id", "")): item for item in two}
    moved = _moved([id for id in old if id in new], [id for id in new if id in old])
    found = []
    for id, item in new.items():
        earlier = old.get(id)
        fields = _fields(earlier or {}, item, defaults)
        if earlier is None:
            found.append(ItemChange(id, _label(item), What.ADDED, fields))
        elif fields or id in moved:
            what = What.CHANGED if fields else What.MOVED
            found.append(ItemChange(id, _label(item), what, fields))
    for id, item in old.items():
        if id not in new:
            found.append(ItemChange(id, _label(item), What.REMOVED, _fields(item, {}, defaults)))
    return found


def _moved(one: Sequence[str], two: Sequence[str]) -> set[str]:
    """Those that do not belong to the longest run of ids in their old order."""
    still: set[str] = set()
    for block in SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
        still.update(two[block.b : block.b + block.size])
    return set(two) - still


def _fields(
    before: Json, after: Json, defaults: Json, leave_out: set[str] | None = None
) -> list[FieldChange]:
    one, two = _flat(before, defaults), _flat(after, defaults)
    names = sorted(one.keys() | two.keys(), key=_place)
    return [
        FieldChange(name, as_text(one.get(name)), as_text(two.get(name)))
        for name in names
        if name not in {"id", *(leave_out or ())} and not _is_same(one.get(name), two.get(name))
    ]


def _is_same(one: Any, two: Any) -> bool:
    """1 and 1.0 are the same, 1 and true are not."""
    return one == two and isinstance(one, bool) is isinstance(two, bool)


def _flat(item: Json, defaults: Json) -> dict[str, Any]:
    """Fields that say something, each parameter by itself."""
    found: dict[str, Any] = {}
    for name, value in item.items():
        if name == "params" and isinstance(value, Mapping):
            found.update({f"params.{key}": each for key, each in value.items()})
        elif name == "applies" and isinstance(value, Mapping):
            said = {k: v for k, v in value.items() if v != defaults["applies"].get(k)}
            found.update({name: said} if said else {})
        elif not (name in defaults and _is_same(value, _plain(defaults[name]))):
            found[name] = value
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _place(name: str) -> tuple[int, str]:
    first = _EARLIER_FIRST.index(name) if name in _EARLIER_FIRST else len(_EARLIER_FIRST)
    return (first, name)


def _listed(spec: Json, key: str) -> list[Json]:
    listed = spec.get(key)
    if not isinstance(listed, list | tuple):
        return []
    return [item for item in listed if isinstance(item, Mapping)]


def _label(item: Json) -> str:
    return str(item.get("name") or item.get("id") or "")
