"""The budget ledger of `optimizer.ledger` kept in the database, for climbs and for judges.

One conditional UPDATE per account decides a reservation, so that a cap is never exceeded, whatever
runs in parallel. Entries are unique per (budget, kind, key): repeating a step after a kill spends
nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.db.models import F

from optimizer.ledger import Account, Outcome, Reservation, Status
from optimizer.models import Budget, LedgerEntry


class DatabaseStore:
    """Where reservations live. See `optimizer.ledger.Store`."""

    def open_reservation(self, reservation: Reservation) -> Outcome:
        try:
            with transaction.atomic():
                for account in reservation.accounts:
                    budget = budget_of(account)
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
                budget = budget_of(account)
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


def budget_of(account: Account) -> Budget:
    return Budget.objects.get(scope=account.scope, role=account.role, unit=account.unit)
