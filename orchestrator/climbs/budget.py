"""What a climb may spend: rollouts of its roles, over the ledger in the database."""

from __future__ import annotations

from optimizer.models import Budget
from orchestrator.judging import accounts
from orchestrator.judging.accounts import ROLLOUTS, BudgetExceeded

__all__ = ["ROLLOUTS", "BudgetExceeded", "open_budget", "reserve", "settle"]
HINT = "Raise `max_rollouts` in the climb's settings and start a new climb."


def open_budget(*, scope: str, role: str, unit: str, cap: float) -> Budget:
    return accounts.open_account(scope=scope, role=role, unit=unit, cap=cap)


def reserve(*, budget: Budget, key: str, amount: int, phase: str) -> None:
    """Sets `amount` aside under `key`; a second call with the same key changes nothing.

    Raises:
        BudgetExceeded: used + reserved + amount would pass the cap.
    """
    accounts.reserve(
        scopes=[budget.scope],
        role=budget.role,
        key=key,
        amounts={budget.unit: amount},
        what=phase,
        hint=HINT,
    )


def settle(*, budget: Budget, key: str, amount: int) -> None:
    """Turns the reservation of `key` into `amount` used; what is left over is free again.

    A key without a reservation is left alone: its run was not asked for by a climb.
    """
    accounts.settle(scopes=[budget.scope], role=budget.role, key=key, amounts={budget.unit: amount})
