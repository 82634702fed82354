"""The record of one request: what was touched so far. No database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

MAX_CHANGES = 50
"""Objects named in one entry; the rest is counted."""
MAX_TEXT = 1_000
"""Characters of one value."""

HIDDEN = "(hidden)"
_SECRET_PARTS = ("password", "secret", "digest", "api_key", "encrypted", "token_hash", "private")


@dataclass
class Record:
    project_id: int | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    more: int = 0
    """Changes beyond `MAX_CHANGES`."""
    is_kept: bool = False
    """Whether its entry is written."""

    def add(
        self,
        kind: str,
        pk: object,
        label: str,
        what: str,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """`what`: created, changed or deleted. Later changes of the same object are folded in."""
        fields = {
            name: [_plain(name, before.get(name)), _plain(name, after.get(name))]
            for name in dict.fromkeys([*before, *after])
            if before.get(name) != after.get(name)
        }
        if not fields and what == "changed":
            return
        for known in self.changes:
            if known["kind"] == kind and known["id"] == str(pk) and what == "changed":
                for name, (old, new) in fields.items():
                    known["fields"][name] = [known["fields"].get(name, [old])[0], new]
                return
        if len(self.changes) >= MAX_CHANGES:
            self.more += 1
            return
        self.changes.append(
            {"kind": kind, "id": str(pk), "label": label[:200], "what": what, "fields": fields}
        )


_current: ContextVar[Record | None] = ContextVar("audit_record", default=None)


def current() -> Record | None:
    return _current.get()


@contextmanager
def acting() -> Iterator[Record]:
    """Opens a record; the caller writes what came of it."""
    record = Record()
    token = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)


def changed(
    kind: str, pk: object, label: str, *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Says what one UPDATE did, for services that change rows without loading them."""
    if (record := _current.get()) is not None:
        record.add(kind, pk, label, "changed", before, after)


def _plain(name: str, value: Any) -> Any:
    """A value as JSON keeps it; secrets hidden, long texts cut."""
    if value in (None, ""):
        return value
    if any(part in name.lower() for part in _SECRET_PARTS):
        return HIDDEN
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
