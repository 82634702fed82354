"""The verdict on an episode, from the state that it left and the answer that it gave.

Several conditions multiply into one reward by the worst of them. What is not committed is not
there. A state too big to be compared is not the expected one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.environments.sql.answers import is_answer
from orchestrator.environments.sql.engine import Database, Prepared
from orchestrator.environments.sql.state import (
    Row,
    rows_of,
    same_rows,
    share_of_change,
    without,
)


def grade(
    prepared: Prepared,
    database: Database,
    fresh: Database | None,
    *,
    answer: str | None,
    last_rows: tuple[Row, ...] | None,
) -> float:
    """From 0 to 1. `VerdictError` if the state cannot be read.

    `database` after `leave`; `fresh`: one that nobody touched, needed where the task has checks.
    `answer`: the agent's words; without them `last_rows`, those of its last query, are its answer.
    """
    task = prepared.task
    shares: list[float] = []
    if prepared.answer is not None:
        if answer is not None:
            is_right = is_answer(
                answer, prepared.answer, tolerance=task.tolerance, is_ordered=task.ordered
            )
        else:
            is_right = last_rows is not None and same_rows(
                prepared.answer, last_rows, tolerance=task.tolerance, is_ordered=task.ordered
            )
        shares.append(float(is_right))
    if prepared.expected is not None or not task.checks:
        final = database.state(task.tables or None)
        if final is None:
            return 0.0
        expected = prepared.initial if prepared.expected is None else prepared.expected
        states = [without(s, task.ignore_columns) for s in (prepared.initial, expected, final)]
        shares.append(share_of_change(*states, tolerance=task.tolerance))
    if task.checks:
        assert fresh is not None, "checks are compared with the state before"
        shares.append(_share_of_checks(prepared, database, fresh))
    share = min(shares)
    return share if task.partial else float(share == 1.0)


def _share_of_checks(prepared: Prepared, database: Database, fresh: Database) -> float:
    """Of the checks that failed at first, those that hold; each one that was lost weighs as wrong.

    So doing nothing earns nothing. 1 exactly where all hold.
    """
    task = prepared.task
    held = [_holds(check, fresh, task.tolerance) for check in task.checks]
    holds = [_holds(check, database, task.tolerance) for check in task.checks]
    wanted = held.count(False)
    gained = sum(now and not before for before, now in zip(held, holds, strict=True))
    lost = sum(before and not now for before, now in zip(held, holds, strict=True))
    if wanted == 0:
        return float(lost == 0)
    return gained / (wanted + lost)


def _holds(check: Any, database: Database, tolerance: float) -> bool:
    rows = database.rows(check.sql)
    wanted = rows_of(check.rows)
    return rows is not None and same_rows(
        wanted, rows, tolerance=tolerance, is_ordered=check.is_ordered
    )


def last_rows_of(results: Sequence[Mapping[str, Any]]) -> tuple[Row, ...] | None:
    """Rows of the last query among an action's results, if they are all there."""
    last = next((result for result in reversed(results) if "rows" in result), None)
    return None if last is None or last["is_cut"] else rows_of(last["rows"])
