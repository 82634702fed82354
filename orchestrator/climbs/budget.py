"""The budget ledger of `optimizer.ledger` kept in the database.

One conditional UPDATE per account decides a reservation, so that a cap is never exceeded, whatever
runs in parallel. Entries are unique per (budget, kind, key): repeating a step after a kill spends
nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.db.models import F

from optimizer import ledger
from optimizer.ledger import Account, Outcome, Reservation, Status
from optimizer.models import Budget, LedgerEntry

ROLLOUTS = "rollouts"
LEASE_S = 30 * 86_400.0
"""A run settles when it ends, whatever happens to its workers; this frees what a deleted one held.
"""


class BudgetExceeded(RuntimeError):
    """A cap would be exceeded; the message names the cap, what is used and who can raise it."""


class DatabaseStore:
    """Where reservations live. See `optimizer.ledger.Store`."""

    def open_reservation(self, reservation: Reservation) -> Outcome:
        try:
            with transaction.atomic():
                for account in reservation.accounts:
                    budget = _budget(account)
                    LedgerEntry.objects.create(
                        budget=budget,
                        kind=LedgerEntry.Kind.RESERVE,
                        key=reservation.key,
                        amount=reservation.amount,
                        expires_at=reservation.expires_at,
                    )
                    fits = Budget.objects.filter(
                        pk=budget.pk, cap__gte=F("used") + F("reserved") + reservation.amount
                    ).update(reserved=F("reserved") + reservation.amount)
                    if not fits:
                        raise _Refused
        except _Refused:
            return Outcome.REFUSED
        except IntegrityError:
            return Outcome.REPEATED
        return Outcome.DONE

    def close_reservation(self, key: str, status: Status, spent: int) -> Reservation | None:
        kind = LedgerEntry.Kind.SETTLE if status is Status.SETTLED else LedgerEntry.Kind.REFUND
        with transaction.atomic():
            known = self.reservation(key)
            if known is None or known.status is not Status.OPEN:
                return None
            for account in known.accounts:
                budget = _budget(account)
                try:
                    with transaction.atomic():
                        LedgerEntry.objects.create(budget=budget, kind=kind, key=key, amount=spent)
                except IntegrityError:
                    return None  # another worker closed it in between
                Budget.objects.filter(pk=budget.pk).update(
                    reserved=F("reserved") - known.amount, used=F("used") + spent
                )
            return known

    def reservation(self, key: str) -> Reservation | None:
        entries = list(LedgerEntry.objects.filter(key=key).select_related("budget"))
        opened = [e for e in entries if e.kind == LedgerEntry.Kind.RESERVE]
        if not opened:
            return None
        kinds = {e.kind for e in entries}
        status = Status.OPEN
        if LedgerEntry.Kind.SETTLE in kinds:
            status = Status.SETTLED
        elif LedgerEntry.Kind.REFUND in kinds:
            status = Status.REFUNDED
        return Reservation(
            key=key,
            accounts=tuple(Account(e.budget.scope, e.budget.role, e.budget.unit) for e in opened),
            amount=int(opened[0].amount),
            expires_at=opened[0].expires_at or 0.0,
            status=status,
        )

    def expired(self, now: float) -> Sequence[Reservation]:
        keys = LedgerEntry.objects.filter(
            kind=LedgerEntry.Kind.RESERVE, expires_at__lte=now
        ).values_list("key", flat=True)
        found = (self.reservation(key) for key in keys.distinct())
        return [item for item in found if item is not None and item.status is Status.OPEN]


class _Refused(Exception):
    """Control flow: rolls a reservation back."""


def _budget(account: Account) -> Budget:
    return Budget.objects.get(scope=account.scope, role=account.role, unit=account.unit)


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
