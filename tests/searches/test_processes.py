"""SIGKILL for the worker of a search at twenty random points: the same end, nothing spent twice."""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest

from optimizer.models import Budget, Search, SearchState
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, Run
from tests.base import People
from tests.climbs.ladder import follows_demonstrations
from tests.doubles.model_server import Asked
from tests.live import LiveStack, MakeStack
from tests.runs.conftest import MakeModel
from tests.runs.drive import assert_gapless
from tests.searches.build import make_search, work
from tests.searches.playing import facts
from tests.searches.test_kills import course, spent
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

KILLS = 20
FAST_LEASES = {
    "SWITCHBACK_JOB_LEASE_S": "3",
    "SWITCHBACK_JOB_BEAT_S": "0.5",
    "SWITCHBACK_JOB_GRACE_S": "1",
}
ENDED = (SearchState.AWAITING_APPROVAL, SearchState.COMPLETED, SearchState.FAILED)
LIMIT_S = 240.0


def slowly(asked: Asked) -> str:
    """Slow enough that a kill finds rollouts under way."""
    threading.Event().wait(0.1)
    return follows_demonstrations(asked)


def test_a_search_ends_the_same_whatever_is_killed(
    people: People, fault_url: str, make_model: MakeModel, make_stack: MakeStack
) -> None:
    model = make_model(slowly)
    calm = make_search(people, base_url=fault_url, model_url=model.url)
    work()
    calm.refresh_from_db()
    assert calm.state == SearchState.AWAITING_APPROVAL, calm.error

    rename(calm)
    shaken = make_search(people, base_url=fault_url, model_url=model.url)
    stack = make_stack(arguments=[], environ=FAST_LEASES)
    stack.start()
    draw = random.Random(11)
    for target in sorted(draw.sample(range(1, len(facts(calm)) - 8), KILLS)):
        wait_until(
            partial(has_come_to, shaken, target),
            limit_s=LIMIT_S,
            what=f"{target} rollouts; {stack.output[-1000:]}",
        )
        kill_worker(stack)
    wait_until(lambda: has_ended(shaken), limit_s=LIMIT_S, what=f"the end; {stack.output[-1000:]}")
    shaken.refresh_from_db()
    assert shaken.state == SearchState.AWAITING_APPROVAL, shaken.error
    assert course(shaken) == course(calm)
    assert facts(shaken) == facts(calm)
    assert spent(shaken) == spent(calm)
    check_repeats(shaken)
    assert_gapless()


def rename(search: Search) -> None:
    """Makes room for a second environment of the same name."""
    assert search.environment_version is not None
    environment = search.environment_version.environment
    environment.slug = "calm"
    environment.save(update_fields=["slug"])


def kill_worker(stack: LiveStack) -> None:
    wait_until(lambda: "worker" in stack.children(), limit_s=LIMIT_S, what="a worker")
    stack.kill_child("worker")


def ended(search: Search) -> int:
    rollouts = Rollout.objects.filter(run__search_run__search=search)
    return rollouts.exclude(state__in=OPEN_ROLLOUT_STATES).count()


def has_come_to(search: Search, target: int) -> bool:
    return ended(search) >= target or has_ended(search)


def has_ended(search: Search) -> bool:
    return Search.objects.filter(pk=search.pk, state__in=ENDED).exists()


def check_repeats(search: Search) -> None:
    """Only what a dead worker held was attempted again; nothing is booked for it."""
    every = Rollout.everything.filter(run__search_run__search=search)
    lost = every.filter(is_replaced=True)
    assert set(lost.values_list("cause", flat=True)) <= {"worker_lost"}
    assert lost.exists(), "no kill hit a rollout"
    total = Budget.objects.get(scope=f"search:{search.pk}", unit="rollouts")
    assert (total.used, total.reserved) == (every.filter(is_replaced=False).count(), 0)
    assert not Run.objects.filter(search_run__search=search, ended_at=None).exists()
