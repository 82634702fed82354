"""Whether an agent's written answer says what a query gives.

One value is compared as it stands. Several are read one a line, or where there is one line
separated by commas or semicolons; cells of a row by `|`, tab or comma. Numbers compare by value,
texts exactly but for white space and surrounding quotes, NULL is written `null` or `none`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from orchestrator.environments.sql.state import Cell, Row, are_close_numbers

_ITEMS = re.compile(r"\s*[,;]\s*")
_CELLS = re.compile(r"\s*[|\t]\s*")
MAX_ITEMS = 200


def is_answer(
    text: str, expected: Sequence[Row], *, tolerance: float, is_ordered: bool = False
) -> bool:
    readings = (
        reading
        for reading in _readings(text, expected)
        if [len(row) for row in reading] == [len(row) for row in expected]
    )
    return any(_agree(reading, expected, tolerance, is_ordered) for reading in readings)


def _readings(text: str, expected: Sequence[Row]) -> list[list[list[str]]]:
    """Ways to read the text as rows of cells."""
    lines = [line.strip().strip("|").strip() for line in text.splitlines() if line.strip()]
    if not expected:
        return [[]] if not lines or lines == ["none"] or lines == ["null"] else [[["?"]]]
    if len(expected) == 1 and len(expected[0]) == 1:
        return [[[text.strip()]]]
    by_cells = [_CELLS.split(line) for line in lines]
    by_commas = [_ITEMS.split(line) for line in lines]
    readings = [by_cells, by_commas]
    if len(lines) == 1:
        readings.append([[item] for item in by_commas[0]])
    return readings


def _agree(
    reading: list[list[str]], expected: Sequence[Row], tolerance: float, is_ordered: bool
) -> bool:
    if is_ordered or len(expected) > MAX_ITEMS:
        return all(_same(r, e, tolerance) for r, e in zip(reading, expected, strict=True))
    left = list(expected)
    for row in reading:
        found = next((e for e in left if _same(row, e, tolerance)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _same(row: Sequence[str], expected: Row, tolerance: float) -> bool:
    return all(_says(text, cell, tolerance) for text, cell in zip(row, expected, strict=True))


def _says(text: str, cell: Cell, tolerance: float) -> bool:
    text = " ".join(text.split())
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`":
        text = text[1:-1]
    if cell is None:
        return text.casefold() in ("null", "none")
    if isinstance(cell, bool):
        return text.casefold() in (("true", "t", "1") if cell else ("false", "f", "0"))
    if isinstance(cell, int | float):
        try:
            number = Decimal(text)
        except InvalidOperation:
            return False
        if number.is_finite() and number == number.to_integral_value() and abs(number) < 2**63:
            return are_close_numbers(int(number), cell, tolerance)
        return are_close_numbers(float(number), cell, tolerance)
    if isinstance(cell, bytes):
        return text.casefold() == cell.hex()
    return text == " ".join(cell.split())
