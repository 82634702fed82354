"""What differs between two versions, or a version and a draft. Pure.

Of sealed tasks (select and test) only the names of the changed parts that solve them are told, not
their content: whoever has seen an answer could build a harness for it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.environments.services import NewTask

Piece = tuple[str, str]
"""(`same`, `gone` or `new`, text)"""
MAX_WORDS = 2_000
"""Longer texts are compared line by line: comparing words takes time with their square."""
MAX_LINES = 4_000
_WORD = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


@dataclass(frozen=True)
class Side:
    fields: Mapping[str, Any]
    """Of the version as a whole."""
    tasks: Mapping[str, NewTask]


@dataclass(frozen=True)
class FieldChange:
    name: str
    before: str = ""
    after: str = ""
    is_sealed: bool = False
    """Only that it changed may be told; both texts are empty then."""

    @property
    def pieces(self) -> list[Piece]:
        """Worked out when it is shown: a page shows few of many."""
        return pieces(self.before, self.after)


@dataclass(frozen=True)
class TaskChange:
    key: str
    split: str
    """Afterwards; of a removed task before."""
    was: str
    """Split before."""
    fields: Sequence[FieldChange] = ()


@dataclass(frozen=True)
class Difference:
    fields: Sequence[FieldChange] = ()
    added: Sequence[TaskChange] = ()
    removed: Sequence[TaskChange] = ()
    changed: Sequence[TaskChange] = ()
    n_same: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.fields or self.added or self.removed or self.changed)

    @property
    def n_sealed(self) -> int:
        """Changes that touch the sealed test split."""
        tasks = [*self.added, *self.removed, *self.changed]
        return sum(1 for task in tasks if "test" in (task.split, task.was))


@dataclass(frozen=True)
class _Part:
    name: str
    is_open: bool
    """Whether it may be shown of sealed tasks too, as the pages of tasks do."""
    default: Any = field(default=None)


_PARTS = (
    _Part("prompt", True, ""),
    _Part("split", True, ""),
    _Part("family", True, ""),
    _Part("difficulty", True),
    _Part("limits", True, {}),
    _Part("seeds", False, []),
    _Part("reset", False, {}),
    _Part("reference", False),
)


def difference(before: Side, after: Side, *, show_sealed: bool = False) -> Difference:
    """`show_sealed`: tell what solves train tasks, and the source, which may hold the grader or
    variables; of select and test tasks what solves them is never told.
    """
    added = [after.tasks[key] for key in sorted(after.tasks.keys() - before.tasks.keys())]
    removed = [before.tasks[key] for key in sorted(before.tasks.keys() - after.tasks.keys())]
    changed = []
    n_same = 0
    for key in sorted(before.tasks.keys() & after.tasks.keys()):
        old, new = before.tasks[key], after.tasks[key]
        fields = _task_changes(old, new, show_sealed)
        if fields:
            changed.append(TaskChange(key, new.split, old.split, fields))
        else:
            n_same += 1
    return Difference(
        fields=[
            _change(name, before.fields.get(name), value, show_sealed or name != "source")
            for name, value in after.fields.items()
            if as_text(before.fields.get(name)) != as_text(value)
        ],
        added=[TaskChange(task.key, task.split, "") for task in added],
        removed=[TaskChange(task.key, task.split, task.split) for task in removed],
        changed=changed,
        n_same=n_same,
    )


def _task_changes(old: NewTask, new: NewTask, show_sealed: bool) -> list[FieldChange]:
    may_tell = show_sealed and old.split == new.split == "train"
    found = []
    for part in _PARTS:
        one, two = (_value(task, part) for task in (old, new))
        if one != two:
            found.append(_change(part.name, one, two, part.is_open or may_tell))
    one, two = old.spec or {}, new.spec or {}
    for name in sorted(one.keys() | two.keys()):
        if one.get(name) != two.get(name):
            found.append(_change(name, one.get(name), two.get(name), may_tell))
    return found


def _value(task: NewTask, part: _Part) -> Any:
    """What is not set stands for the default; a difficulty of 0 is set."""
    value = getattr(task, part.name)
    return part.default if value in (None, "", [], {}) else value


def _change(name: str, before: Any, after: Any, is_open: bool) -> FieldChange:
    if not is_open:
        return FieldChange(name, is_sealed=True)
    return FieldChange(name, as_text(before), as_text(after))


def as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def pieces(before: str, after: str) -> list[Piece]:
    """The texts as one, in pieces; the `same` and `gone` ones joined give `before`."""
    one, two = (_WORD.findall(text) for text in (before, after))
    if len(one) > MAX_WORDS or len(two) > MAX_WORDS:
        one, two = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if len(one) > MAX_LINES or len(two) > MAX_LINES:
        return [piece for piece in (("gone", before), ("new", after)) if piece[1]]
    found: list[Piece] = []
    matcher = difflib.SequenceMatcher(None, one, two)
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            found.append(("same", "".join(one[i:j])))
            continue
        if j > i:
            found.append(("gone", "".join(one[i:j])))
        if m > k:
            found.append(("new", "".join(two[k:m])))
    return found
