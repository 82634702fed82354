"""Text of a table, split into records with the line that each begins on. Nothing is judged here.

One bad record never takes its neighbours along: after a quote that is never closed, reading goes
on at the next line. Bytes that are not UTF-8 stay in the text as lone surrogates, so that only
their own record is refused.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.environments.authoring.values import parse_json

DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class Record:
    """One row. `problem` says why it could not be split into values."""

    line: int
    raw: str
    values: dict[str, Any] | list[str] | None = None
    """An object of JSON, or the cells below a header."""
    problem: str = ""


def decoded(content: bytes | str) -> str:
    """Text of a file as it came: UTF-8 or, by its mark, UTF-16. Never fails: see the module."""
    if isinstance(content, bytes):
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            content = content.decode("utf-16", errors="replace")
        else:
            content = content.decode("utf-8", errors="surrogateescape")
    return content.removeprefix("\ufeff")


class _Lines:
    """Physical lines of a table; can go back, which a text stream under a CSV reader cannot."""

    def __init__(self, text: str) -> None:
        self.lines = list(io.StringIO(text, newline=""))
        self.at = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.at >= len(self.lines):
            raise StopIteration
        self.at += 1
        return self.lines[self.at - 1]


def csv_cells(text: str, delimiter: str) -> Iterator[tuple[int, str, list[str] | str]]:
    """Line, raw text, and the cells or why there are none, of each record that is not blank."""
    lines = _Lines(text)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        start = lines.at
        try:
            cells: list[str] | str = next(reader)
        except StopIteration:
            return
        except csv.Error as exc:
            cells = _csv_problem(str(exc), n_lines=lines.at - start)
            lines.at = start + 1
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
        if isinstance(cells, str) or any(cell.strip() for cell in cells):
            yield start + 1, "".join(lines.lines[start : lines.at]), cells


def _csv_problem(message: str, *, n_lines: int) -> str:
    if "unexpected end of data" in message:
        return "a quote is opened and never closed"
    if "field larger than" in message:
        return f"a cell is larger than {csv.field_size_limit():,} characters; use JSONL for it"
    if "expected after" in message:
        where = "" if n_lines == 1 else f", {n_lines} lines after its start"
        return f"a quoted cell goes on after its closing quote{where}; double the quotes inside it"
    return f"cannot be read as CSV: {message}"


def delimiter_of(header: str, known: set[str]) -> str:
    """The delimiter that finds most known names in the header; a comma when none does."""

    def found(delimiter: str) -> int:
        return sum(1 for cell in header.split(delimiter) if normal(cell) in known)

    return max(DELIMITERS, key=found)


def normal(name: str) -> str:
    """`Task ID ` and `task-id` are the same column."""
    return re.sub(r"[\s\-]+", "_", name.strip().strip('"').strip()).casefold()


def csv_records(
    content: str, delimiter: str
) -> tuple[list[str] | None, Record | None, Iterator[Record]]:
    """Header, what is wrong with it, and the rows below it."""
    rows = csv_cells(content, delimiter)
    first = next(rows, None)
    if first is None:
        return None, Record(1, "", problem="the file is empty"), iter(())
    line, raw, header = first
    if isinstance(header, str):
        return None, Record(line, raw, problem=f"the header {header}"), iter(())

    def records() -> Iterator[Record]:
        for line, raw, cells in rows:
            if isinstance(cells, str):
                yield Record(line, raw, problem=cells)
            elif len(cells) != len(header):
                yield Record(
                    line,
                    raw,
                    problem=f"has {_cells(len(cells))}, the header has {len(header)}; "
                    "quote texts that contain a delimiter or a line end",
                )
            else:
                yield Record(line, raw, cells)

    return header, None, records()


def _cells(n: int) -> str:
    return "1 cell" if n == 1 else f"{n} cells"


def json_records(text: str) -> Iterator[Record]:
    """One JSON object a line, blank lines left out; or one JSON list of objects."""
    is_list = text.lstrip().startswith("[")
    return _list_records(text) if is_list else _line_records(text)


_BETWEEN = re.compile(r"[\s,]*")


def _list_records(text: str) -> Iterator[Record]:
    """Items with the line that each begins on. After a fault no further item can be found."""
    decoder = json.JSONDecoder()
    at = text.index("[") + 1
    line = 1 + text.count("\n", 0, at)
    while True:
        found = _BETWEEN.match(text, at)
        start = found.end() if found else at
        line += text.count("\n", at, start)
        if start >= len(text) or text[start] == "]":
            return
        try:
            _, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            raw = text[start : start + 400].split("\n", 1)[0]
            reason = "is not JSON from here on; what follows in the list cannot be read"
            yield Record(line, raw, problem=reason)
            return
        yield _record(line, text[start:at])
        line += text.count("\n", start, at)


def _line_records(text: str) -> Iterator[Record]:
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        if not line.strip():
            continue
        yield _record(number, line)


def _record(line: int, raw: str) -> Record:
    try:
        value = parse_json(raw)
    except ValueError as exc:
        return Record(line, raw, problem=str(exc))
    if isinstance(value, dict):
        return Record(line, raw, value)
    return Record(line, raw, problem="must be a JSON object: {…}")
