"""What the address of a list says: filter, order, columns, place, open row. Pure.

Everything is in the address, so that a link, a saved view and the browser's history show the same
list again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

MOST_COLUMNS = 20


@dataclass(frozen=True)
class Column:
    name: str
    word: str
    sort: str = ""
    """Name of the order that its head chooses."""
    is_number: bool = False
    is_wide: bool = False


@dataclass(frozen=True)
class ListState:
    query: str = ""
    sort: str = ""
    """Empty for the usual order."""
    columns: tuple[str, ...] = ()
    """Empty for the usual ones."""
    after: str = ""
    before: str = ""

    def link(self, **changes: Any) -> str:
        """The query string of the same list with changes, from its first page on."""
        return "?" + urlencode(replace(self, **{"after": "", "before": "", **changes}).asked())

    @property
    def first_page(self) -> ListState:
        return replace(self, after="", before="")

    @property
    def clear_url(self) -> str:
        return self.link(query="")

    @property
    def usual_columns_url(self) -> str:
        return self.link(columns=())

    def asked(self) -> list[tuple[str, str]]:
        pairs = [("q", self.query), ("sort", self.sort), ("col", ",".join(self.columns))]
        pairs += [("after", self.after), ("before", self.before)]
        return [(name, value) for name, value in pairs if value]

    def narrowed(self, condition: str) -> str:
        """The filter with one more condition."""
        query = self.query.strip()
        return f"({query}) and {condition}" if query else condition


def state_in(given: Mapping[str, Sequence[str]], sorts: Mapping[str, Any]) -> ListState:
    """`col` may be repeated or hold commas; an order that there is not is the usual one."""

    def last(name: str) -> str:
        return (given.get(name) or [""])[-1]

    names = [name for text in given.get("col", ()) for name in text.split(",")]
    sort = last("sort")
    return ListState(
        query=last("q").replace("\x00", ""),
        sort=sort if sort.removeprefix("-") in sorts else "",
        columns=tuple(dict.fromkeys(name.strip()[:80] for name in names if name.strip()))[
            :MOST_COLUMNS
        ],
        after=last("after")[:400],
        before=last("before")[:400],
    )


@dataclass(frozen=True)
class Head:
    """A column's head: where a click leads, and how it is sorted now."""

    column: Column
    url: str
    aria_sort: str


def heads(columns: Sequence[Column], state: ListState, default: str) -> list[Head]:
    """A click sorts upward or, for numbers, downward first; the second turns it round."""
    now = state.sort or default
    found = []
    for column in columns:
        if not column.sort:
            found.append(Head(column, "", ""))
            continue
        first = f"-{column.sort}" if column.is_number or column.sort == "started" else column.sort
        other = column.sort if first.startswith("-") else f"-{column.sort}"
        wanted = other if now == first else first
        turned = {column.sort: "ascending", f"-{column.sort}": "descending"}.get(now, "none")
        found.append(Head(column, state.link(sort="" if wanted == default else wanted), turned))
    return found


@dataclass(frozen=True)
class Mistake:
    """A filter that cannot be read, cut at what is wrong."""

    message: str
    head: str
    wrong: str
    tail: str


def mistake_in(text: str, message: str, start: int, end: int) -> Mistake:
    end = max(end, start)
    return Mistake(message, text[max(0, start - 80) : start], text[start:end][:80], text[end:][:80])
