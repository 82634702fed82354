"""What a climb may spend: rollouts of its roles, over the ledger in the database."""

from __future__ import annotations

import time

from optimizer import ledger
from optimizer.ledger import Account, Outcome
from optimizer.models import Budget
from orchestrator.judging.ledger_store import DatabaseStore

ROLLOUTS = "rollouts"
LEASE_S = 30 * 86_400.0
"""A run settles when it ends, whatever happens to its workers; this frees what a deleted one held.
"""


class BudgetExceeded(RuntimeError):
    """A cap would be exceeded; the message names the cap, what is used and who can raise it."""


def _account(budget: Budget) -> Account:
    return Account(budget.scope, budget.role, budget.unit)


def open_budget(*, scope: str, role: str, unit: str, cap: float) -> Budget:
    budget, _ = Budget.objects.get_or_create(
        scope=scope, role=role, unit=unit, defaults={"cap": cap}
    )
    return budget


def reserve(*, budget: Budget, key: str, amount: int, phase: str) -> None:
    """Sets `amount` aside under `key`; a second call with the same key changes nothing.

    Raises:
        BudgetExceeded: used + reserved + amount would pass the cap.
    """
    outcome = ledger.reserve(
        DatabaseStore(),
        key=_key(budget, key),
        accounts=[_account(budget)],
        amount=amount,
        now=time.time(),
        lease_s=LEASE_S,
    )
    if outcome is Outcome.REFUSED:
        budget.refresh_from_db()
        raise BudgetExceeded(
            f"{amount} {budget.unit} for {phase} would exceed the {budget.role} budget of "
            f"{budget.cap:g} (used {budget.used:g}, reserved {budget.reserved:g}). "
            "Raise `max_rollouts` in the climb's settings and start a new climb."
        )


def settle(*, budget: Budget, key: str, amount: int) -> None:
    """Turns the reservation of `key` into `amount` used; what is left over is free again.

    A key without a reservation is left alone: its run was not asked for by a climb.
    """
    store, full_key = DatabaseStore(), _key(budget, key)
    if store.reservation(full_key) is not None:
        ledger.settle(store, key=full_key, amount=amount)


def _key(budget: Budget, key: str) -> str:
    """Keys of the ledger are global; those of a budget are its own."""
    return f"{budget.scope}/{budget.role}/{budget.unit}/{key}"
