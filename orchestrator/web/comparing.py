"""The comparison page's choices and what they select: rows by mode, order and page. Pure.

Everything is in the address, so that a link shows the same page again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from orchestrator.runs.comparison.table import PASS, CellState, TaskRow

MODES = ("all", "failures", "passes", "errors", "different", "highlights")
LAYOUTS = ("list", "grid", "summary")
SORTS = ("task", "regression", "gain", "baseline")
ROWS_PER_PAGE = {"list": 100, "grid": 20, "summary": 100}
HIGHLIGHTS = 10
"""The largest changes in either direction; errors of one side only come beside them."""


@dataclass(frozen=True)
class Options:
    tokens: tuple[str, ...] = ()
    """Sides, the baseline first."""
    show: str = "all"
    sort: str = "task"
    layout: str = "list"
    differs: bool = False
    """Hide what is equal: fields and tasks."""
    words: bool = False
    """Answers as word differences against the baseline."""
    family: str = ""
    split: str = ""
    page: int = 1

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What the page's form sends along: all that it has no field for."""
        fields: dict[str, Any] = {"differs": False, "family": "", "split": "", "page": 1}
        if self.layout == "grid":
            fields["words"] = False
        return list(replace(self, **fields).asked().items())

    def link(self, **changes: Any) -> str:
        """The query string of the same page with changes; another selection starts at page 1."""
        return "?" + urlencode(replace(self, **{"page": 1, **changes}).asked(), safe=",.")

    def asked(self) -> dict[str, str]:
        """As parameters; those that are as by default are left out."""
        asked: dict[str, str] = {"runs": ",".join(self.tokens)}
        for name, default in (("show", "all"), ("sort", "task"), ("layout", "list")):
            if getattr(self, name) != default:
                asked[name] = getattr(self, name)
        for name in ("differs", "words"):
            if getattr(self, name):
                asked[name] = "1"
        for name in ("family", "split"):
            if getattr(self, name):
                asked[name] = getattr(self, name)
        if self.page > 1:
            asked["page"] = str(self.page)
        return asked


def options_of(given: Mapping[str, Sequence[str]]) -> Options:
    """What cannot be read is its default. `runs` may be repeated or hold commas."""

    def one(name: str, allowed: Sequence[str], default: str) -> str:
        value = _last(given, name)
        return value if value in allowed else default

    tokens = [token for text in given.get("runs", ()) for token in text.split(",") if token.strip()]
    page = _last(given, "page")
    return Options(
        tokens=tuple(dict.fromkeys(token.strip() for token in tokens)),
        show=one("show", MODES, "all"),
        sort=one("sort", SORTS, "task"),
        layout=one("layout", LAYOUTS, "list"),
        differs=_last(given, "differs") == "1",
        words=_last(given, "words") == "1",
        family=_last(given, "family"),
        split=_last(given, "split"),
        page=max(1, int(page)) if page.isdecimal() and len(page) < 7 else 1,
    )


def _last(given: Mapping[str, Sequence[str]], name: str) -> str:
    values = given.get(name) or ("",)
    return values[-1]


@dataclass(frozen=True)
class Selected:
    rows: Sequence[TaskRow]
    """Of this page."""
    n_shown: int
    """On all pages."""
    n_all: int
    n_equal: int
    """Hidden by «differs only»."""
    page: int
    n_pages: int
    all_rows: Sequence[TaskRow]
    """Of all pages, in order."""


def select(rows: Sequence[TaskRow], options: Options) -> Selected:
    shown = shown_in(rows, options.show)
    n_equal = 0
    if options.differs:
        different = [row for row in shown if row.differs]
        n_equal, shown = len(shown) - len(different), different
    shown = ordered(shown, options.sort)
    size = ROWS_PER_PAGE[options.layout]
    n_pages = max(1, -(-len(shown) // size))
    page = min(options.page, n_pages)
    return Selected(
        rows=shown[(page - 1) * size : page * size],
        n_shown=len(shown),
        n_all=len(rows),
        n_equal=n_equal,
        page=page,
        n_pages=n_pages,
        all_rows=shown,
    )


def mode_counts(rows: Sequence[TaskRow]) -> list[tuple[str, int]]:
    return [(mode, len(shown_in(rows, mode))) for mode in MODES]


def shown_in(rows: Sequence[TaskRow], mode: str) -> list[TaskRow]:
    if mode == "failures":
        return [row for row in rows if any(_is_failed(row, side) for side in _sides(row))]
    if mode == "passes":
        return [row for row in rows if _passes(row)]
    if mode == "errors":
        return [row for row in rows if any(cell.errored for cell in row.cells)]
    if mode == "different":
        return [row for row in rows if row.differs]
    if mode == "highlights":
        return _highlights(rows)
    return list(rows)


def ordered(rows: Sequence[TaskRow], sort: str) -> list[TaskRow]:
    """Ties, and what has no number, in order of task; the latter at the end."""
    if sort == "regression":
        return sorted(rows, key=lambda row: row.worst)
    if sort == "gain":
        return sorted(rows, key=lambda row: -row.best)
    if sort == "baseline":
        return sorted(rows, key=lambda row: _or_last(row.cells[0].score))
    return list(rows)


def _or_last(score: float | None) -> float:
    return float("inf") if score is None else score


def _sides(row: TaskRow) -> range:
    return range(len(row.cells))


def _is_failed(row: TaskRow, side: int) -> bool:
    score = row.cells[side].score
    return score is not None and score < PASS


def _passes(row: TaskRow) -> bool:
    """Every side that has a score passes, and one has."""
    scores = [cell.score for cell in row.cells if cell.score is not None]
    return bool(scores) and min(scores) >= PASS


def _highlights(rows: Sequence[TaskRow]) -> list[TaskRow]:
    moved = sorted(
        (row for row in rows if any(row.deltas)),
        key=lambda row: -max(abs(d) for d in row.deltas if d is not None),
    )
    chosen = {row.task for row in moved[:HIGHLIGHTS]}
    return [row for row in rows if row.task in chosen or _errs_on_one_side(row)]


def _errs_on_one_side(row: TaskRow) -> bool:
    states = [cell.state for cell in row.cells if cell.state != CellState.ABSENT]
    return CellState.ERRORED in states and CellState.SCORED in states
