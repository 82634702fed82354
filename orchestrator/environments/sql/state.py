"""Comparing states of a database: all rows of all tables, order ignored, floats with a tolerance.

How much of a wanted change was made is measured on changes alone, so that doing nothing earns
nothing however much of the database was right before: with W the rows to remove and to add, and D
those that were removed and added, the share is |W ∩ D| / |W ∪ D| (multisets). It is 1 exactly for
the expected state. Where nothing was to change, it is 1 for an untouched database and else 0.
A table counts as one more row that holds its columns, so that tables can be made and dropped.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Cell = None | bool | int | float | str | bytes
Row = tuple[Cell, ...]

MATCHED_ROWS = 200
"""Above that many rows that agree in all but numbers, they are paired in sorted order instead of
in the best way, which takes time by the square."""


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


State = Mapping[str, Table]


def state_of(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Table]:
    """From a runner's answer."""
    return {
        name: Table(tuple(table["columns"]), rows_of(table["rows"]))
        for name, table in tables.items()
    }


def rows_of(rows: Iterable[Sequence[Any]]) -> tuple[Row, ...]:
    """Rows as JSON carries them; bytes come as `{"blob": hex}`."""
    return tuple(tuple(_cell(value) for value in row) for row in rows)


def _cell(value: Any) -> Cell:
    if isinstance(value, dict):
        return bytes.fromhex(value["blob"])
    is_plain = value is None or isinstance(value, bool | int | float | str | bytes)
    return value if is_plain else str(value)


REPORTED_ROWS = 500
"""Of one table, in a report for criteria."""


def report_of(state: State) -> dict[str, dict[str, Any]]:
    """Tables as JSON for criteria: {"columns", "rows"}; a longer table is cut and says so."""
    return {
        name: {
            "columns": list(table.columns),
            "rows": [[_json(cell) for cell in row] for row in table.rows[:REPORTED_ROWS]],
            **({"n_rows": len(table.rows)} if len(table.rows) > REPORTED_ROWS else {}),
        }
        for name, table in state.items()
    }


def _json(cell: Cell) -> Any:
    if isinstance(cell, bytes):
        return {"blob": cell.hex()}
    return cell if not isinstance(cell, float) or math.isfinite(cell) else str(cell)


def without(state: State, ignored: Iterable[str]) -> dict[str, Table]:
    """The state without columns named `table.column`, columns in the order of their names."""
    dropped = {name.casefold() for name in ignored}
    kept = {}
    for name, table in state.items():
        order = sorted(
            (i for i, c in enumerate(table.columns) if f"{name}.{c}".casefold() not in dropped),
            key=lambda i: table.columns[i],
        )
        kept[name] = Table(
            tuple(table.columns[i] for i in order),
            tuple(tuple(row[i] for i in order) for row in table.rows),
        )
    return kept


def share_of_change(initial: State, expected: State, final: State, *, tolerance: float) -> float:
    """See the module's text. From 0 to 1."""
    right = wrong = wanted = 0
    for name in initial.keys() | expected.keys() | final.keys():
        before, goal = _rows(initial, name), _rows(expected, name)
        after = _as_expected(goal, _rows(final, name), tolerance)
        to_do = _changes(before, goal)
        done = _changes(before, after)
        hit = sum((to_do & done).values())
        wanted += sum(to_do.values())
        right += hit
        wrong += sum(done.values()) - hit
    if wanted == 0:
        return 0.0 if wrong else 1.0
    return right / (wanted + wrong)


def same_rows(
    expected: Sequence[Row], given: Sequence[Row], *, tolerance: float, is_ordered: bool = False
) -> bool:
    if len(expected) != len(given):
        return False
    wanted, there = _keys(expected), _keys(given)
    if is_ordered:
        return all(_are_close(w, t, tolerance) for w, t in zip(wanted, there, strict=True))
    return Counter(_as_expected(wanted, there, tolerance)) == Counter(wanted)


# --- rows as keys --------------------------------------------------------------------------------

_Key = tuple[tuple[str, Any], ...]
"""A row that can be counted: each cell with its type, since 1 == True to Python."""


def _rows(state: State, name: str) -> list[_Key]:
    table = state.get(name)
    if table is None:
        return []
    return [(("columns", table.columns),), *_keys(table.rows)]


def _keys(rows: Iterable[Row]) -> list[_Key]:
    return [tuple(_typed(cell) for cell in row) for row in rows]


def _typed(cell: Cell) -> tuple[str, Any]:
    """Numbers are of one type: whether a column holds 1 or 1.0 is the engine's business."""
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return ("number", "nan" if cell != cell else cell)
    return (type(cell).__name__, cell)


def _changes(before: Sequence[_Key], after: Sequence[_Key]) -> Counter[tuple[str, _Key]]:
    old, new = Counter(before), Counter(after)
    removed = Counter({("-", row): n for row, n in (old - new).items()})
    return removed + Counter({("+", row): n for row, n in (new - old).items()})


def _as_expected(expected: Sequence[_Key], given: Sequence[_Key], tolerance: float) -> list[_Key]:
    """The given rows, each that equals an expected one within the tolerance replaced by it."""
    if Counter(expected) == Counter(given):
        return list(given)
    groups: defaultdict[_Key, tuple[list[_Key], list[_Key]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((expected, given)):
        for row in rows:
            groups[_shape(row)][side].append(row)
    found: list[_Key] = []
    for wanted, there in groups.values():
        found += _paired(wanted, there, tolerance)
    return found


def _shape(row: _Key) -> _Key:
    return tuple((cell[0], None) if cell[0] == "number" else cell for cell in row)


def _paired(wanted: list[_Key], there: list[_Key], tolerance: float) -> list[_Key]:
    if not wanted or not there or Counter(wanted) == Counter(there):
        return there
    if max(len(wanted), len(there)) <= MATCHED_ROWS:
        partner = _matching(wanted, there, tolerance)
        return [wanted[partner[i]] if i in partner else row for i, row in enumerate(there)]
    equal = Counter(wanted) & Counter(there)
    open_goals = sorted((Counter(wanted) - equal).elements(), key=repr)
    found = list(equal.elements())
    for row in sorted((Counter(there) - equal).elements(), key=repr):
        near = next((g for g in open_goals if _are_close(g, row, tolerance)), None)
        if near is not None:
            open_goals.remove(near)
        found.append(row if near is None else near)
    return found


def _matching(wanted: list[_Key], there: list[_Key], tolerance: float) -> dict[int, int]:
    """Greatest matching by augmenting paths: index in `there` to index in `wanted`."""
    close = [
        [j for j, goal in enumerate(wanted) if _are_close(goal, row, tolerance)] for row in there
    ]
    owner: dict[int, int] = {}

    def place(i: int, tried: set[int]) -> bool:
        for j in close[i]:
            if j not in tried:
                tried.add(j)
                if j not in owner or place(owner[j], tried):
                    owner[j] = i
                    return True
        return False

    for i in range(len(there)):
        place(i, set())
    return {i: j for j, i in owner.items()}


def _are_close(a: _Key, b: _Key, tolerance: float) -> bool:
    return len(a) == len(b) and all(
        x == y or (x[0] == y[0] == "number" and are_close_numbers(x[1], y[1], tolerance))
        for x, y in zip(a, b, strict=True)
    )


def are_close_numbers(a: Any, b: Any, tolerance: float) -> bool:
    """Within the tolerance; or a billionth apart, where one is no whole number: what adding up
    floats in another order brings.
    """
    if "nan" in (a, b):
        return bool(a == b)
    try:
        if abs(a - b) <= tolerance:
            return True
        is_whole = a == int(a) and b == int(b)
    except (OverflowError, ValueError):  # infinite
        return bool(a == b)
    return not is_whole and math.isclose(a, b, rel_tol=1e-9)
