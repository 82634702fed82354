"""Spending by role over the ledger in the database: several units and scopes at once, all or none.

A scope (a search, a phase of one, a climb) has an account for each unit that is capped; a unit
without an account is not capped. What is spent in a part of a scope is booked on both. Amounts are
whole numbers of rollouts, tokens, micro dollars or milliseconds.

What is reserved is an upper bound. Where the true amount turns out larger, which only an estimate
of tokens, money or time can do, it is counted all the same: it is spent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial

from django.db import transaction
from django.db.models import F

from optimizer import ledger
from optimizer.ledger import Account, Outcome, Status
from optimizer.models import Budget
from orchestrator.judging.ledger_store import DatabaseStore

ROLLOUTS, TOKENS, MICRO_USD, MILLISECONDS = "rollouts", "tokens", "micro_usd", "milliseconds"
LEASE_S = 30 * 86_400.0
"""Whoever reserves settles when what it reserved for has ended, whatever happens to workers; this
frees what was held for something deleted.
"""


class BudgetExceeded(RuntimeError):
    """A cap would be exceeded; the message names the cap, what is used and who can raise it."""


def micro_usd(usd: float) -> int:
    """Rounded up, so that small amounts add up."""
    return math.ceil(round(usd * 1e6, 3))


def open_account(*, scope: str, role: str, unit: str, cap: float) -> Budget:
    """The account; one that exists keeps its cap."""
    budget, _ = Budget.objects.get_or_create(
        scope=scope, role=role, unit=unit, defaults={"cap": cap}
    )
    return budget


def accounts_of(scopes: Sequence[str], role: str) -> dict[str, list[Budget]]:
    """By unit; a unit that is not capped is not in it."""
    found: dict[str, list[Budget]] = {}
    for row in Budget.objects.filter(scope__in=scopes, role=role).order_by("unit", "scope"):
        found.setdefault(row.unit, []).append(row)
    return found


def reserve(
    *,
    scopes: Sequence[str],
    role: str,
    key: str,
    amounts: Mapping[str, int],
    what: str,
    hint: str,
    lease_s: float = LEASE_S,
) -> None:
    """Sets the amounts aside under `key` on the accounts that exist, on all of them or on none.

    A second call with the same key changes nothing. `what` needs it and `hint` says who can raise
    the cap, for the refusal.

    Raises:
        BudgetExceeded: used + reserved + amount would pass a cap.
    """
    store, now = DatabaseStore(), time.time()
    with transaction.atomic():
        for unit, budgets in accounts_of(scopes, role).items():
            amount = amounts.get(unit, 0)
            if amount < 1:
                continue
            attempt = partial(
                ledger.reserve,
                store,
                key=_key(scopes, role, unit, key),
                accounts=[Account(row.scope, role, unit) for row in budgets],
                amount=amount,
                now=now,
                lease_s=lease_s,
            )
            outcome = attempt()
            if outcome is Outcome.REFUSED and ledger.expire(store, now=now):
                outcome = attempt()
            if outcome is Outcome.REFUSED:
                raise BudgetExceeded(_refusal(budgets, amount, what, hint))


def settle(*, scopes: Sequence[str], role: str, key: str, amounts: Mapping[str, int]) -> None:
    """Counts what was spent under `key` and frees the rest; a repeat changes nothing.

    A key that nothing was reserved under is left alone.
    """
    store = DatabaseStore()
    for unit, budgets in accounts_of(scopes, role).items():
        full = _key(scopes, role, unit, key)
        with transaction.atomic():
            held = store.reservation(full)
            if held is None:
                continue
            spent = amounts.get(unit, 0)
            outcome = ledger.settle(store, key=full, amount=min(spent, int(held.amount)))
            beyond = spent - int(held.amount)
            if outcome is Outcome.DONE and beyond > 0:
                ids = [row.pk for row in budgets]
                Budget.objects.filter(pk__in=ids).update(used=F("used") + beyond)


def held(*, scope: str, role: str, key: str) -> dict[str, int]:
    """By unit: what is set aside under `key` and neither settled nor refunded."""
    found = {}
    for unit in accounts_of([scope], role):
        reservation = DatabaseStore().reservation(_key([scope], role, unit, key))
        if reservation is not None and reservation.status is Status.OPEN:
            found[unit] = int(reservation.amount)
    return found


def raise_cap(*, scope: str, role: str, unit: str, cap: float) -> bool:
    """Never below what is used and reserved; False if it would be."""
    return bool(
        Budget.objects.filter(
            scope=scope, role=role, unit=unit, used__lte=cap - F("reserved")
        ).update(cap=cap)
    )


def _key(scopes: Sequence[str], role: str, unit: str, key: str) -> str:
    """Keys of the ledger are global; those of an account are its own."""
    return f"{scopes[0]}/{role}/{unit}/{key}"


def shown(unit: str, amount: float) -> str:
    """An amount with its unit, for people."""
    if unit in (MICRO_USD, MILLISECONDS):
        return _number(unit, amount)
    return f"{_number(unit, amount)} {unit}"


def _number(unit: str, amount: float) -> str:
    if unit == MICRO_USD:
        return f"${amount / 1e6:,.4f}".rstrip("0").rstrip(".")
    if unit == MILLISECONDS:
        return f"{amount / 1e3:,.0f} s"
    return f"{amount:,.0f}"


def _refusal(budgets: Sequence[Budget], amount: int, what: str, hint: str) -> str:
    rows = Budget.objects.filter(pk__in=[row.pk for row in budgets])
    budget = min(rows, key=lambda row: row.cap - row.used - row.reserved)
    unit = budget.unit
    return (
        f"{shown(unit, amount)} for {what} would exceed the {budget.role} budget of "
        f"{_number(unit, budget.cap)} (used {_number(unit, budget.used)}, reserved "
        f"{_number(unit, budget.reserved)}). {hint}"
    )
