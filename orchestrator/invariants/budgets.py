"""Budgets: what is counted is what was booked, once, and no cap is passed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orchestrator.invariants.finding import Finding, Findings

EXACT_UNITS = ("rollouts",)
"""Reserved exactly. Tokens, money and time are estimates: what turns out larger is counted, so
their `used` may pass what was booked."""
_CLOSE = 1e-6


class BudgetRow(NamedTuple):
    id: int
    scope: str
    role: str
    unit: str
    cap: float
    used: float
    reserved: float


class EntryRow(NamedTuple):
    budget_id: int
    kind: str
    key: str
    amount: float


def check_budget(row: BudgetRow, entries: Sequence[EntryRow]) -> Findings:
    subject = f"{row.scope} {row.role} {row.unit}"
    by_key: dict[str, dict[str, float]] = defaultdict(dict)
    for entry in entries:
        if entry.kind in by_key[entry.key]:
            yield Finding("budget.once", subject, f"{entry.key} has two entries {entry.kind}")
        by_key[entry.key][entry.kind] = entry.amount
    settled = open_ = 0.0
    for key, kinds in by_key.items():
        if "reserve" not in kinds:
            yield Finding("budget.once", subject, f"{key} was closed but never reserved")
        elif "settle" in kinds and "refund" in kinds:
            yield Finding("budget.once", subject, f"{key} was settled and refunded")
        elif "settle" in kinds:
            settled += kinds["settle"]
            if kinds["settle"] > kinds["reserve"] + _CLOSE:
                yield Finding("budget.once", subject, f"{key} settled more than it had reserved")
        elif "refund" not in kinds:
            open_ += kinds["reserve"]
    if abs(open_ - row.reserved) > _CLOSE * max(1.0, open_):
        yield Finding(
            "budget.sums", subject, f"{row.reserved:g} are reserved, entries say {open_:g}"
        )
    is_exact = row.unit in EXACT_UNITS
    below = row.used < settled - _CLOSE * max(1.0, settled)
    above = row.used > settled + _CLOSE * max(1.0, settled)
    if below or (above and is_exact):
        yield Finding("budget.sums", subject, f"{row.used:g} are used, entries say {settled:g}")
    if is_exact and row.used + row.reserved > row.cap + _CLOSE:
        yield Finding(
            "budget.cap", subject, f"{row.used:g} + {row.reserved:g} are more than {row.cap:g}"
        )


def check_budgets(budgets: Iterable[BudgetRow], entries: Iterable[EntryRow]) -> Findings:
    """Entries by budget."""
    by_budget: dict[int, list[EntryRow]] = defaultdict(list)
    for entry in entries:
        by_budget[entry.budget_id].append(entry)
    for row in budgets:
        yield from check_budget(row, by_budget.get(row.id, []))
