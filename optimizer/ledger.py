"""Budgets that cannot be overshot: reserve before spending, then settle or refund.

This is the logic; where the numbers live is a `Store`'s business. All that is asked of it is one
atomic step: raise what is reserved, on every account named, only where used + reserved + amount
stays at or below the cap, on all of them or on none. A reservation is an upper bound of what will
be spent; settling more than was reserved is refused, because only that keeps the cap exact.

Reservations carry a key. Repeating a step with its key changes nothing, so a worker that is killed
between two steps may do both again; a retry of what was refunded is another thing and takes another
key. A lease that has expired is refunded by `expire`, and a late
answer to it is reported as late and not counted.

A phase that must not starve another can have an account of its own, cut off the whole at the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from optimizer.errors import LedgerMisused


class Outcome(StrEnum):
    DONE = "done"
    """The step took effect."""
    REPEATED = "repeated"
    """It had taken effect before; nothing changed."""
    REFUSED = "refused"
    """A cap would be exceeded; nothing changed."""
    LATE = "late"
    """The reservation had expired and was refunded; nothing is counted."""


class Status(StrEnum):
    OPEN = "open"
    SETTLED = "settled"
    REFUNDED = "refunded"


@dataclass(frozen=True)
class Account:
    scope: str
    """What is budgeted, for instance `climb:7` or `climb:7/certify`."""
    role: str
    """agent, judge, proposer or trainer."""
    unit: str
    """rollouts, tokens, micro_usd or milliseconds; amounts are whole numbers of it."""


@dataclass(frozen=True)
class Reservation:
    key: str
    accounts: tuple[Account, ...]
    amount: int
    expires_at: float
    """Seconds of the caller's clock."""
    status: Status = Status.OPEN


class Store(Protocol):
    """Where budgets and reservations are kept. Each method is atomic."""

    def open_reservation(self, reservation: Reservation) -> Outcome:
        """Records it and raises `reserved` on all its accounts, if all caps allow it.

        REPEATED if the key exists, REFUSED if a cap does not allow it.
        """

    def close_reservation(self, key: str, status: Status, spent: int) -> Reservation | None:
        """Turns an open reservation into `status`: `reserved` falls by its amount, `used` grows by
        `spent`. Returns it as it was; None if there is none or it was closed before.
        """

    def reservation(self, key: str) -> Reservation | None: ...

    def expired(self, now: float) -> Sequence[Reservation]:
        """Open reservations whose time is over."""


def reserve(
    store: Store, *, key: str, accounts: Sequence[Account], amount: int, now: float, lease_s: float
) -> Outcome:
    """Sets `amount` aside on every account: DONE, REPEATED or REFUSED."""
    if amount < 1 or not accounts:
        raise LedgerMisused(f"{key}: reserve at least 1 on at least one account")
    return store.open_reservation(Reservation(key, tuple(accounts), amount, now + lease_s))


def settle(store: Store, *, key: str, amount: int) -> Outcome:
    """Counts what was spent and frees the rest: DONE, REPEATED or LATE."""
    known = store.reservation(key)
    if known is None:
        raise LedgerMisused(f"{key}: nothing was reserved")
    if not 0 <= amount <= known.amount:
        raise LedgerMisused(
            f"{key}: {amount} spent of {known.amount} reserved; reserve the upper bound"
        )
    return _close(store, key, Status.SETTLED, amount)


def refund(store: Store, *, key: str) -> Outcome:
    """Frees a reservation that was not used: DONE, REPEATED, or LATE when it was settled."""
    if store.reservation(key) is None:
        raise LedgerMisused(f"{key}: nothing was reserved")
    return _close(store, key, Status.REFUNDED, 0)


def expire(store: Store, *, now: float) -> list[str]:
    """Refunds what is overdue; the keys that this call refunded."""
    return [
        item.key
        for item in store.expired(now)
        if store.close_reservation(item.key, Status.REFUNDED, 0) is not None
    ]


def _close(store: Store, key: str, status: Status, spent: int) -> Outcome:
    if store.close_reservation(key, status, spent) is not None:
        return Outcome.DONE
    known = store.reservation(key)
    return Outcome.REPEATED if known is not None and known.status is status else Outcome.LATE
