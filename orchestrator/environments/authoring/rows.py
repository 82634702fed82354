"""Reads a table of tasks, CSV or JSONL, for any kind. Pure: no database, no files.

    result = read_rows(KINDS["qa"], "csv", content)
    result.tasks    # what fits, with the line each came from
    result.errors   # what does not: line, field, reason, the row shortened

Rows are independent: a bad one is left out and named, the others stay. A row without a key gets one
from its content, so that the same file read again means the same tasks. Every limit names itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.environments.authoring import values
from orchestrator.environments.authoring.columns import Column, column_names, match
from orchestrator.environments.authoring.records import (
    Record,
    csv_records,
    decoded,
    delimiter_of,
    json_records,
)
from orchestrator.environments.authoring.task_checks import CHECKS
from orchestrator.environments.kinds import Kind
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.services import NewTask

Format = Literal["csv", "jsonl"]

MAX_BYTES = 32 * 2**20
MAX_ROWS = 50_000
MAX_ERRORS = 1_000
"""Errors that are kept; further ones are counted."""
MAX_TASK_CHARS = 2 * 2**20
RAW_CHARS = 200
_APOSTROPHE = re.compile(r"'+[=+\-@\t\r]")


@dataclass(frozen=True)
class RowError:
    """`line` 0: the file as a whole."""

    line: int
    field: str
    reason: str
    raw: str = ""


@dataclass(frozen=True)
class ReadTask:
    line: int
    task: NewTask


@dataclass(frozen=True)
class ReadResult:
    tasks: tuple[ReadTask, ...] = ()
    errors: tuple[RowError, ...] = ()
    n_bad_rows: int = 0
    """Rows that were left out; a row may have several errors."""
    n_errors: int = 0
    """All errors, those beyond `MAX_ERRORS` too."""
    unused: tuple[str, ...] = ()
    """Columns that no field of a task is called."""


@dataclass
class _Findings:
    errors: list[RowError] = field(default_factory=list)
    n_errors: int = 0
    bad_lines: set[int] = field(default_factory=set)

    def add(self, record: Record, where: str, reason: str) -> None:
        self.n_errors += 1
        self.bad_lines.add(record.line)
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(RowError(record.line, where, reason, shortened(record.raw)))


def read_rows(
    kind: Kind, format: Format, text: str | bytes, *, default_split: str = "train"
) -> ReadResult:
    """See the module. `default_split`: of rows that name none."""
    if len(text) > MAX_BYTES:
        return _refused(
            f"has {len(text):,} bytes; the limit of a file is {MAX_BYTES:,}. Split it and add the "
            "parts one after the other"
        )
    names = column_names(kind)
    content = decoded(text)
    found, unused = _Findings(), dict[str, None]()
    if format == "csv":
        header_line = content.lstrip("\r\n").split("\n", 1)[0]
        header, problem, records = csv_records(content, delimiter_of(header_line, set(names)))
        if problem is not None:
            return _refused(problem.problem, line=problem.line, raw=problem.raw)
        columns, unknown, twice = match(header or [], names)
        if twice:
            return _refused(twice, line=1, raw=header_line)
        if not any(columns):
            return _refused(
                "the first line must name the columns, among them: " + ", ".join(_wanted(kind)),
                line=1,
                raw=header_line,
            )
        unused.update(dict.fromkeys(unknown))
        given = _from_cells(records, columns, found)
    else:
        given = _from_objects(json_records(content), names, found, unused)
    tasks: list[ReadTask] = []
    keys: dict[str, int] = {}
    for n_rows, (record, common, own) in enumerate(given, start=1):
        if n_rows > MAX_ROWS:
            found.add(record, "file", f"has more than {MAX_ROWS:,} rows, the limit of a file")
            break
        task = _task(kind, record, common, own, default_split, found)
        if task is None:
            continue
        first = keys.setdefault(task.key, record.line)
        if first != record.line:
            reason = f"{task.key} is on line {first} already"
            found.add(record, "key", reason)
            continue
        tasks.append(ReadTask(record.line, task))
    if not tasks and not found.n_errors:
        return _refused("has no rows", unused=tuple(unused))
    errors = sorted(found.errors, key=lambda error: error.line)
    return ReadResult(
        tasks=tuple(tasks),
        errors=tuple(errors),
        n_bad_rows=len(found.bad_lines),
        n_errors=found.n_errors,
        unused=tuple(unused),
    )


def shortened(raw: str) -> str:
    """A row for a list of errors: one line, storable, cut."""
    text = raw[: RAW_CHARS * 2].encode("utf-8", errors="replace").decode()
    text = " ".join(text.replace("\x00", " ").split())
    return text if len(text) <= RAW_CHARS else text[: RAW_CHARS - 1] + "…"


def _refused(
    reason: str, *, line: int = 0, raw: str = "", unused: tuple[str, ...] = ()
) -> ReadResult:
    error = RowError(line, "file", reason, shortened(raw))
    return ReadResult(errors=(error,), n_errors=1, n_bad_rows=0, unused=unused)


def _wanted(kind: Kind) -> list[str]:
    return ["prompt", *(f.name for f in kind.task_fields if f.is_required), "key", "split"]


Given = tuple[Record, dict[str, Any], dict[str, Any]]
"""A record, its common values and those of the kind; texts of cells are values already."""


def _from_cells(
    records: Iterable[Record], columns: list[Column | None], found: _Findings
) -> Iterator[Given]:
    for record in records:
        if not isinstance(record.values, list):
            found.add(record, "row", record.problem)
            continue
        common: dict[str, Any] = {}
        own: dict[str, Any] = {}
        n_before = found.n_errors
        for column, cell in zip(columns, record.values, strict=True):
            if column is None or not cell.strip():
                continue
            text = cell[1:] if _APOSTROPHE.match(cell) else cell
            try:
                value = _cell(column, text)
            except ValueError as exc:
                found.add(record, column.field.name, str(exc))
                continue
            (common if column.is_common else own)[column.field.name] = value
        if found.n_errors == n_before:
            yield record, common, own


def _cell(column: Column, text: str) -> Any:
    name = column.field.name
    if column.is_common and name == "seeds" and not text.lstrip().startswith("["):
        return [part for part in re.split(r"[\s,;]+", text) if part]
    if column.is_common and name in ("key", "split", "family", "difficulty"):
        return values.checked_text(text).strip()
    return values.from_text(column.field, text)


def _from_objects(
    records: Iterable[Record],
    names: Mapping[str, Column],
    found: _Findings,
    unused: dict[str, None],
) -> Iterator[Given]:
    for record in records:
        if not isinstance(record.values, dict):
            found.add(record, "row", record.problem)
            continue
        header = list(record.values)
        columns, unknown, twice = match(header, names)
        if len(unused) < 50:
            unused.update(dict.fromkeys(unknown))
        if twice:
            found.add(record, "row", twice)
            continue
        common: dict[str, Any] = {}
        own: dict[str, Any] = {}
        n_before = found.n_errors
        for column, value in zip(columns, record.values.values(), strict=True):
            if column is None or values.is_blank(value):
                continue
            name = column.field.name
            try:
                if column.is_common and name == "prompt":
                    common[name] = values.from_json(column.field, value)
                elif column.is_common:
                    common[name] = value
                else:
                    own[name] = values.from_json(column.field, value)
            except ValueError as exc:
                found.add(record, name, str(exc))
        if found.n_errors == n_before:
            yield record, common, own


def _task(
    kind: Kind,
    record: Record,
    common: Mapping[str, Any],
    own: Mapping[str, Any],
    default_split: str,
    found: _Findings,
) -> NewTask | None:
    """The task of a row, or None with every fault found."""
    n_before = found.n_errors
    checked: dict[str, Any] = {}
    for name, check in CHECKS.items():
        try:
            checked[name] = check(common[name]) if name in common else None
        except ValueError as exc:
            found.add(record, name, str(exc))
    if "prompt" not in common:
        found.add(record, "prompt", "is missing")
    spec = _spec(kind, record, checked.get("spec"), own, found)
    split = checked.get("split") or default_split
    reference = checked.get("reference")
    if reference and split != "train":
        found.add(record, "reference", f"only train tasks may have one; this one is in {split}")
    if found.n_errors > n_before:
        return None
    key = checked["key"] or derived_key(common["prompt"], spec)
    reset = checked["reset"] or {}
    if kind.resets_by_key:
        reset = {**reset, "task": key}
    task = NewTask(
        key=key,
        split=split,
        prompt=common["prompt"],
        family=checked["family"] or "",
        reset=reset,
        spec=spec,
        reference=reference,
        difficulty=checked["difficulty"],
        limits=checked["limits"] or {},
        seeds=checked["seeds"] or [],
    )
    problem = problem_of(kind, task)
    if problem is not None:
        found.add(record, *problem)
        return None
    return task


def _spec(
    kind: Kind,
    record: Record,
    given: dict[str, Any] | None,
    own: Mapping[str, Any],
    found: _Findings,
) -> dict[str, Any]:
    spec = {**(given or {}), **own}
    for item in kind.task_fields:
        if item.name in spec and not values.is_blank(spec[item.name]):
            continue
        if item.default is not None:
            spec[item.name] = item.default
        elif item.is_required:
            found.add(record, item.name, "is missing")
    return spec


def problem_of(kind: Kind, task: NewTask) -> tuple[str, str] | None:
    """Field and reason why the kind cannot serve the task."""
    size = len(json.dumps(task.spec)) + len(task.prompt)
    if size > MAX_TASK_CHARS:
        return "row", f"has {size:,} characters; the limit of a task is {MAX_TASK_CHARS:,}"
    try:
        kind.check_task(task.spec or {}, task.reset or {})
    except (ValueError, TypeError) as exc:
        where = _field_in(str(exc), kind.task_fields)
        return where, str(exc).removeprefix(f"{where}: ")
    return None


def _field_in(message: str, task_fields: Iterable[Field]) -> str:
    """The field that a kind's message names; a row when it names none."""
    places = [
        (found.start(), item.name)
        for item in task_fields
        if (found := re.search(rf"\b{re.escape(item.name)}\b", message))
    ]
    return min(places)[1] if places else "row"


def derived_key(prompt: str, spec: Mapping[str, Any]) -> str:
    content = json.dumps([prompt, spec], sort_keys=True, ensure_ascii=True)
    return f"task-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
