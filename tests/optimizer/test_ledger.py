from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import LedgerMisused
from optimizer.ledger import (
    Account,
    Outcome,
    Reservation,
    Status,
    expire,
    refund,
    reserve,
    settle,
)

WHOLE = Account("climb:1", "agent", "rollouts")
POT = Account("climb:1/search", "agent", "rollouts")


class MemoryStore:
    """The contract of `Store` in a few lines; records the highest use ever seen."""

    def __init__(self, **caps: int) -> None:
        self.lock = threading.Lock()
        self.caps = {WHOLE: caps.get("whole", 10), POT: caps.get("pot", 10)}
        self.used = dict.fromkeys(self.caps, 0)
        self.reserved = dict.fromkeys(self.caps, 0)
        self.known: dict[str, Reservation] = {}
        self.highest = 0

    def open_reservation(self, reservation: Reservation) -> Outcome:
        with self.lock:
            if reservation.key in self.known:
                return Outcome.REPEATED
            for account in reservation.accounts:
                taken = self.used[account] + self.reserved[account]
                if taken + reservation.amount > self.caps[account]:
                    return Outcome.REFUSED
            for account in reservation.accounts:
                self.reserved[account] += reservation.amount
            self.known[reservation.key] = reservation
            self.highest = max(self.highest, self.used[WHOLE] + self.reserved[WHOLE])
            return Outcome.DONE

    def close_reservation(self, key: str, status: Status, spent: int) -> Reservation | None:
        with self.lock:
            before = self.known[key]
            if before.status is not Status.OPEN:
                return None
            for account in before.accounts:
                self.reserved[account] -= before.amount
                self.used[account] += spent
            self.known[key] = replace(before, status=status)
            return before

    def reservation(self, key: str) -> Reservation | None:
        return self.known.get(key)

    def expired(self, now: float) -> Sequence[Reservation]:
        with self.lock:
            return [
                item
                for item in self.known.values()
                if item.status is Status.OPEN and item.expires_at <= now
            ]


def take(
    store: MemoryStore, key: str, amount: int = 1, accounts: tuple[Account, ...] = (WHOLE,)
) -> Outcome:
    return reserve(store, key=key, accounts=accounts, amount=amount, now=0.0, lease_s=60.0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "refund", "expire"]),
        st.sampled_from("abcdefgh"),
        st.integers(1, 5),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_is_done_in_whatever_order_no_cap_is_passed(
    course: list[tuple[str, str, int]],
) -> None:
    store = MemoryStore(whole=12, pot=7)
    for what, key, amount in course:
        known = store.reservation(key)
        if what == "reserve":
            take(store, key, amount, (WHOLE, POT) if key < "e" else (WHOLE,))
        elif known is None:
            continue
        elif what == "settle":
            settle(store, key=key, amount=min(amount, known.amount))
        elif what == "refund":
            refund(store, key=key)
        else:
            expire(store, now=61.0 if amount > 3 else 0.0)
        for account, cap in store.caps.items():
            assert store.used[account] + store.reserved[account] <= cap
            assert store.reserved[account] >= 0
    open_amount = sum(r.amount for r in store.known.values() if r.status is Status.OPEN)
    assert store.reserved[WHOLE] == open_amount


def test_many_workers_never_pass_the_cap_and_use_it_up() -> None:
    store = MemoryStore(whole=100)

    def work(worker: int) -> int:
        spent = 0
        for i in range(60):
            key = f"{worker}/{i}"
            if take(store, key, 2) is Outcome.DONE:
                settle(store, key=key, amount=1)
                spent += 1
        return spent

    with ThreadPoolExecutor(8) as pool:
        spent = sum(pool.map(work, range(8)))
    assert store.highest <= 100
    assert spent == store.used[WHOLE]
    assert 99 <= spent <= 100


def test_a_repeated_step_changes_nothing() -> None:
    store = MemoryStore()
    assert [take(store, "a", 3) for _ in range(2)] == [Outcome.DONE, Outcome.REPEATED]
    assert [settle(store, key="a", amount=2) for _ in range(2)] == [Outcome.DONE, Outcome.REPEATED]
    assert (store.used[WHOLE], store.reserved[WHOLE]) == (2, 0)


def test_a_late_answer_is_not_counted() -> None:
    store = MemoryStore()
    take(store, "a", 3)
    assert expire(store, now=61.0) == ["a"]
    assert expire(store, now=61.0) == []
    assert settle(store, key="a", amount=3) is Outcome.LATE
    assert store.used[WHOLE] == 0


def test_a_pot_is_full_before_the_whole_is() -> None:
    store = MemoryStore(whole=10, pot=4)
    assert take(store, "a", 5, (WHOLE, POT)) is Outcome.REFUSED
    assert store.reserved == {WHOLE: 0, POT: 0}
    assert take(store, "b", 5) is Outcome.DONE


def test_misuse_is_told() -> None:
    store = MemoryStore()
    take(store, "a", 1)
    with pytest.raises(LedgerMisused, match="reserve the upper bound"):
        settle(store, key="a", amount=2)
    with pytest.raises(LedgerMisused, match="nothing was reserved"):
        refund(store, key="b")
    with pytest.raises(LedgerMisused, match="at least 1"):
        take(store, "c", 0)
