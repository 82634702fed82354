"""The budget ledger in the database: reserve before spending, settle or refund after.

One conditional UPDATE decides a reservation, so that a cap is never exceeded, whatever runs in
parallel. Entries are unique per (budget, kind, key): repeating a step after a kill spends nothing
twice.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import F

from optimizer.models import Budget, LedgerEntry

ROLLOUTS = "rollouts"


class BudgetExceeded(RuntimeError):
    """A cap would be exceeded; the message names the cap, what is used and who can raise it."""


def open_budget(*, scope: str, role: str, unit: str, cap: float) -> Budget:
    budget, _ = Budget.objects.get_or_create(
        scope=scope, role=role, unit=unit, defaults={"cap": cap}
    )
    return budget


def reserve(*, budget: Budget, key: str, amount: float, phase: str) -> None:
    """Sets `amount` aside under `key`; a second call with the same key changes nothing.

    Raises:
        BudgetExceeded: used + reserved + amount would pass the cap.
    """
    with transaction.atomic():
        if not _enter(budget, LedgerEntry.Kind.RESERVE, key, amount, phase):
            return
        fits = Budget.objects.filter(
            pk=budget.pk, cap__gte=F("used") + F("reserved") + amount
        ).update(reserved=F("reserved") + amount)
        if not fits:
            budget.refresh_from_db()
            raise BudgetExceeded(
                f"{amount:g} {budget.unit} for {phase} would exceed the {budget.role} budget of "
                f"{budget.cap:g} (used {budget.used:g}, reserved {budget.reserved:g}). "
                "Raise `max_rollouts` in the climb's settings and start a new climb."
            )


def settle(*, budget: Budget, key: str, amount: float, phase: str) -> None:
    """Turns the reservation of `key` into `amount` used; what is left over is free again."""
    with transaction.atomic():
        reserved = LedgerEntry.objects.filter(
            budget=budget, kind=LedgerEntry.Kind.RESERVE, key=key
        ).first()
        if reserved is None or not _enter(budget, LedgerEntry.Kind.SETTLE, key, amount, phase):
            return
        Budget.objects.filter(pk=budget.pk).update(
            reserved=F("reserved") - reserved.amount, used=F("used") + amount
        )


def _enter(budget: Budget, kind: str, key: str, amount: float, phase: str) -> bool:
    """False when the entry exists."""
    try:
        with transaction.atomic():
            LedgerEntry.objects.create(
                budget=budget, kind=kind, key=key, amount=amount, phase=phase
            )
    except IntegrityError:
        return False
    return True
