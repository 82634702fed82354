"""The ledger in the database: whatever runs in parallel or again, a cap is never passed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from django.db import connections
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from optimizer.models import Budget, LedgerEntry
from orchestrator.climbs.budget import BudgetExceeded, open_budget, reserve, settle


def budget_of(cap: float, scope: str = "climb:1") -> Budget:
    return open_budget(scope=scope, role="agent", unit="rollouts", cap=cap)


KEYS = st.sampled_from("abcdefgh")
RESERVE = st.tuples(st.just("reserve"), KEYS, st.integers(1, 9))
SETTLE = st.tuples(st.just("settle"), KEYS, st.integers(0, 9))


class Ledgers(TestCase):
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 30), st.lists(st.one_of(RESERVE, SETTLE), max_size=25))
    def test_any_course_keeps_the_cap_and_repeats_nothing(
        self, cap: int, steps: Sequence[tuple[str, str, int]]
    ) -> None:
        """Against a model in memory; no more is settled than was reserved, as in the product."""
        budget = budget_of(cap)
        reserved: dict[str, int] = {}
        used: dict[str, int] = {}
        for what, key, amount in steps:
            if what == "settle":
                amount = min(amount, reserved.get(key, 0))
                settle(budget=budget, key=key, amount=amount)
                if key in reserved and key not in used:
                    used[key] = amount
            else:
                held = sum(n for k, n in reserved.items() if k not in used)
                fits = key in reserved or held + sum(used.values()) + amount <= cap
                try:
                    reserve(budget=budget, key=key, amount=amount, phase="search")
                except BudgetExceeded:
                    assert not fits
                else:
                    assert fits
                    reserved.setdefault(key, amount)
            budget.refresh_from_db()
            assert budget.used == sum(used.values())
            assert budget.reserved == sum(n for k, n in reserved.items() if k not in used)
            assert budget.used + budget.reserved <= cap


def together(*calls: Callable[[], None]) -> list[Exception]:
    """Runs the calls in threads that start at once; what they raised."""
    barrier, errors = threading.Barrier(len(calls)), []

    def run(call: Callable[[], None]) -> None:
        try:
            barrier.wait(10)
            call()
        except Exception as exc:  # the boundary: handed to the test
            errors.append(exc)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return errors


@pytest.mark.django_db(transaction=True)
def test_threads_together_never_pass_the_cap() -> None:
    budget = budget_of(10)

    def ask(number: int) -> Callable[[], None]:
        return lambda: reserve(budget=budget, key=f"run-{number}", amount=3, phase="search")

    errors = together(*map(ask, range(12)))
    assert [type(error) for error in errors] == [BudgetExceeded] * 9
    budget.refresh_from_db()
    assert (budget.used, budget.reserved) == (0, 9)
    assert LedgerEntry.objects.count() == 3  # a refused reservation leaves nothing behind


@pytest.mark.django_db(transaction=True)
def test_threads_that_repeat_a_step_count_it_once() -> None:
    budget = budget_of(10)
    assert not together(*[lambda: reserve(budget=budget, key="run", amount=4, phase="search")] * 6)
    assert not together(*[lambda: settle(budget=budget, key="run", amount=3)] * 6)
    budget.refresh_from_db()
    assert (budget.used, budget.reserved) == (3, 0)


@pytest.mark.django_db
def test_a_refused_key_may_ask_again_when_there_is_room() -> None:
    budget = budget_of(5)
    reserve(budget=budget, key="a", amount=4, phase="search")
    with pytest.raises(BudgetExceeded):
        reserve(budget=budget, key="b", amount=4, phase="search")
    settle(budget=budget, key="a", amount=1)
    reserve(budget=budget, key="b", amount=4, phase="search")
    budget.refresh_from_db()
    assert (budget.used, budget.reserved) == (1, 4)


@pytest.mark.django_db
def test_the_refusal_says_what_is_used_and_who_can_raise_the_cap() -> None:
    budget = budget_of(5)
    reserve(budget=budget, key="a", amount=4, phase="search")
    with pytest.raises(BudgetExceeded) as caught:
        reserve(budget=budget, key="b", amount=2, phase="train")
    for words in ("2 rollouts for train", "budget of 5", "reserved 4", "Raise `max_rollouts`"):
        assert words in str(caught.value)


@pytest.mark.django_db
def test_budgets_of_two_climbs_know_nothing_of_each_other() -> None:
    reserve(budget=budget_of(5), key="a", amount=5, phase="search")
    reserve(budget=budget_of(5, scope="climb:2"), key="b", amount=5, phase="search")


@pytest.mark.django_db
def test_a_budget_keeps_the_cap_that_it_was_opened_with() -> None:
    assert budget_of(5).pk == budget_of(50).pk
    assert budget_of(50).cap == 5
