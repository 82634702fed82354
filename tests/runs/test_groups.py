"""Rollouts of a task are compared once all of a run are over, and have no score until then."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.judging.models import JudgeCall
from orchestrator.runs import engine
from orchestrator.runs.models import Rollout, RolloutState, Run, RunState, VerdictRecord
from orchestrator.runs.queries import tally
from orchestrator.runs.services import end_cancelled_run
from orchestrator.runs.signals import rollout_ended
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.doubles.model_server import Asked, Raw
from tests.runs.conftest import MakeModel
from tests.runs.drive import (
    act,
    assert_gapless,
    attempt,
    execute,
    kinds_of,
    make_endpoint,
    make_run,
    make_version,
    rollouts,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

RUBRIC = {
    "criteria": [
        {"id": "reward", "kind": "environment_reward"},
        {
            "id": "best",
            "name": "Is the best",
            "kind": "judge_group",
            "scope": "trajectory",
            "params": {"question": "Which is best?", "sees": ["task", "steps"], "min": 0, "max": 9},
        },
    ]
}


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def numbered() -> Callable[[Asked], str]:
    """An agent that ends its episode at once, with a number of its own."""
    numbers = itertools.count()
    return lambda asked: act(op="noop", text=f"number {next(numbers)}", reward=1.0, done=True)


def data_of(asked: Asked) -> Any:
    found = re.search(r"<data-\w+>\n(.*)\n</data-", asked.last, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def by_number(asked: Asked) -> str:
    """A judge that gives each the number that it says."""
    key = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
    assert key is not None
    given = []
    for shown in data_of(asked)["rollouts"]:
        number = re.search(r"number (\d+)", json.dumps(shown))
        assert number is not None
        said = f"number {number.group(1)}"
        given.append({"id": shown["id"], "reason": said, "score": int(number.group(1))})
    return json.dumps({"key": key.group(1), "marks": given})


@pytest.fixture
def compared(people: People, fault_url: str, make_model: MakeModel) -> Callable[..., Run]:
    """A run of two tasks with three rollouts each, whose rubric compares them."""

    def make(judge: Callable[[Asked], str | Raw] = by_number, **options: Any) -> Run:
        rubric, _ = Rubric.objects.get_or_create(project=people.project, name="best")
        make_endpoint(people.project, make_model(judge).url, name="j", kind="openai", is_judge=True)
        return make_run(
            people.project,
            version=make_version(people.project, fault_url, tasks=2),
            model_url=make_model(options.pop("agent", numbered())).url,
            replicates=3,
            rubric_version=create_rubric_version(rubric=rubric, spec=RUBRIC),
            **options,
        )

    return make


def test_each_score_has_what_the_group_gave(compared: Callable[..., Run]) -> None:
    told: list[tuple[int, str]] = []

    def hear(rollout: Rollout, **_: Any) -> None:
        told.append((rollout.pk, rollout.state))

    rollout_ended.connect(hear)
    try:
        run = execute(compared())
    finally:
        rollout_ended.disconnect(hear)
    assert run.state == RunState.COMPLETED
    found = rollouts(run)
    assert {r.state for r in found} == {RolloutState.SCORED}
    assert JudgeCall.objects.count() == 2  # one for each task
    for rollout in found:
        verdict = VerdictRecord.objects.get(rollout=rollout, criterion="best")
        assert verdict.value == pytest.approx(int(verdict.reason.split()[-1]) / 9)
        assert rollout.score == pytest.approx((1 + (verdict.value or 0)) / 2)
        assert verdict.detail["calls"][0]["call"] is not None
        kinds = kinds_of(rollout)
        assert kinds[-3:] == ["rollout.judging", "verdict", "rollout.ended"]
        assert kinds.count("rollout.ended") == 1
    # Whoever waits for rollouts hears of each once, when it has its score.
    assert sorted(told) == sorted((r.pk, "scored") for r in found)
    assert_gapless()


def test_what_errored_on_the_way_is_not_in_the_group(compared: Callable[..., Run]) -> None:
    numbers = itertools.count()

    def agent(asked: Asked) -> str:
        number = next(numbers)
        reward = None if number == 0 else 1.0
        return act(op="noop", text=f"number {number}", reward=reward, done=True)

    seen: list[int] = []

    def judge(asked: Asked) -> str:
        seen.append(len(data_of(asked)["rollouts"]))
        return by_number(asked)

    run = execute(compared(judge, agent=agent))
    states = sorted(r.state for r in rollouts(run))
    assert states == ["errored", *["scored"] * 5] and sorted(seen) == [2, 3]


def test_a_judge_that_is_wrong_twice_leaves_errors_and_no_zero(
    compared: Callable[..., Run],
) -> None:
    run = execute(compared(lambda asked: '{"marks": []}'))
    # The environment's reward decides half of the weight, and stands alone.
    assert {(r.state, r.score) for r in rollouts(run)} == {("scored", 1.0)}
    verdicts = VerdictRecord.objects.filter(rollout__run=run, criterion="best")
    assert {(v.state, v.value) for v in verdicts} == {("errored", None)}
    assert run.has_ended


def test_a_run_that_is_stopped_judges_its_groups_when_it_goes_on(
    compared: Callable[..., Run],
) -> None:
    is_slow = [True]

    def judge(asked: Asked) -> str | Raw:
        if is_slow[0]:
            return Raw(429, '{"error": {"message": "slow down"}}')
        return by_number(asked)

    run = compared(judge)
    with attempt(run) as first:
        wait_until(
            lambda: Rollout.objects.filter(run=run, state="judging").count() == 6,
            limit_s=20,
            what="six rollouts that wait for their groups",
        )
        first.stop()
    counts = tally(run.pk)
    assert (counts.running, counts.scored, counts.done) == (6, 0, 0)
    assert set(Rollout.objects.filter(run=run).values_list("score", flat=True)) == {None}
    steps = {r.pk: kinds_of(r).count("action") for r in rollouts(run)}
    is_slow[0] = False
    run.refresh_from_db()
    execute(run)
    found = rollouts(run)
    assert {r.state for r in found} == {"scored"}
    assert {r.pk: kinds_of(r).count("action") for r in found} == steps  # nothing was repeated


def test_a_run_that_is_cancelled_ends_what_waits_without_a_score(
    compared: Callable[..., Run],
) -> None:
    run = compared(lambda asked: Raw(429, "{}"))
    with attempt(run) as first:
        wait_until(
            lambda: Rollout.objects.filter(run=run, state="judging").count() == 6,
            limit_s=20,
            what="six rollouts that wait for their groups",
        )
        first.stop()
    end_cancelled_run(run=run, fence=None)
    found = rollouts(run)
    assert {(r.state, r.score) for r in found} == {("cancelled", None)}
    assert {r.message for r in found} == {
        "Cancelled by a person before its group was judged. No score."
    }
    assert all(kinds_of(r)[-1] == "rollout.ended" for r in found)
