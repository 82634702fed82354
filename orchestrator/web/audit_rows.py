"""Entries of the audit log in the words of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.projects.models import AuditEntry


@dataclass(frozen=True)
class FieldChange:
    name: str
    before: str
    after: str


@dataclass(frozen=True)
class ObjectChange:
    title: str
    what: str
    fields: list[FieldChange]


@dataclass(frozen=True)
class AuditRow:
    entry: AuditEntry
    title: str
    is_refused: bool
    changes: list[ObjectChange]


def row_of(entry: AuditEntry) -> AuditRow:
    changes = [_change(change) for change in entry.changes]
    return AuditRow(
        entry=entry, title=_title(entry, changes), is_refused=entry.status == 403, changes=changes
    )


def _title(entry: AuditEntry, changes: list[ObjectChange]) -> str:
    """What was made or deleted, if that is one thing; else what the address is called."""
    if len(changes) == 1 and changes[0].what in ("created", "deleted"):
        return f"{changes[0].what.capitalize()} {changes[0].title}"
    return entry.action.rpartition(":")[2].replace("_", " ").capitalize() or entry.method


def _change(change: dict[str, Any]) -> ObjectChange:
    kind, label, pk = change.get("kind", ""), change.get("label", ""), change.get("id", "")
    names_itself = label.startswith(kind) or not kind
    title = label if names_itself else f"{kind} {label}" if label else f"{kind} {pk}"
    what = change.get("what", "")
    fields = [
        FieldChange(name.replace("_", " "), _text(before), _text(after))
        for name, (before, after) in change.get("fields", {}).items()
        # What a new object was given says something, what it was not given does not.
        if what == "changed" or after not in (None, "") or before not in (None, "")
    ]
    return ObjectChange(title=title, what=what, fields=fields)


def _text(value: Any) -> str:
    return "–" if value in (None, "") else str(value)
