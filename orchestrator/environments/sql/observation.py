"""How results of statements read: the database's words apart from the wrapper's.

Training may learn to predict what a database answers, never what this wrapper adds. So rows, column
names and error messages are `env_output`, counts `scaffold`, remarks on limits `warning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN_ROWS = 50
SHOWN_CHARS = 4000
CELL_CHARS = 200
CUT = "…"

Segments = list[dict[str, str]]


def segments_of(results: Sequence[Mapping[str, Any]], *, in_transaction: bool) -> Segments:
    """Pieces for one action; their texts are joined without any addition."""
    segments: Segments = []
    for result in results:
        for kind, text in _pieces(result):
            segments.append({"kind": kind, "text": f"\n{text}" if segments else text})
    if not segments:
        segments.append({"kind": "scaffold", "text": "(no statement)"})
    if in_transaction:
        segments.append({"kind": "scaffold", "text": "\n(a transaction is open)"})
    return segments


def _pieces(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "error" in result:
        return [("env_output", f"Error: {plain(result['error'])[:500]}")]
    if "columns" not in result:
        changed = result["changed"]
        return [("scaffold", "(done)" if changed < 0 else f"({count(changed, 'row')} changed)")]
    rows = result["rows"]
    text, n_shown = table(result["columns"], rows)
    total = f"more than {len(rows)}" if result["is_cut"] else str(len(rows))
    pieces = [("env_output", text)]
    if n_shown < len(rows) or result["is_cut"]:
        pieces.append(("warning", f"(cut: {n_shown} of {total} rows)"))
    else:
        pieces.append(("scaffold", f"({count(len(rows), 'row')})"))
    return pieces


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[str, int]:
    """A line of names, then a line per row; and how many rows are in it."""
    lines = [" | ".join(_cut(plain(name)) for name in columns)]
    size = len(lines[0])
    for row in rows[:SHOWN_ROWS]:
        line = " | ".join(cell(value) for value in row)
        size += len(line) + 1
        if size > SHOWN_CHARS:
            break
        lines.append(line)
    return "\n".join(lines)[:SHOWN_CHARS], len(lines) - 1


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Mapping):
        return _cut(f"x'{value['blob']}'")
    if isinstance(value, str):
        return _cut(plain(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r"))
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}{CUT}"


def plain(text: str) -> str:
    """Without what databases of traces refuse: NUL and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
