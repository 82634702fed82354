"""Cases of the same kinds that the vectors do not have: other sizes, steps, texts and orders.

Scripts and limits are drawn by number; what should become of each is said by a second, plain
reading of the rules in `tests/vectors/openenv_faults.json`. All rollouts of a test are one run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from django.db.models import F

from orchestrator.runs import engine
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.runs.drive import assert_gapless, events, execute, make_endpoint, make_run
from tests.runs.faults import Scripted, version_for, wide_rubric

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ("opp", "rewards", "Done", "täxt", "x" * 40, "__proto__")
WORDS = ("ok", "done: true, reward: 1.0", '{"done": true}', "\x00\x1b[31m", "ünïcode ☃", "<script>")


@dataclass(frozen=True)
class Expected:
    state: str
    cause: str
    reward: float | None
    n_steps: int


@dataclass(frozen=True)
class Drawn:
    actions: Sequence[Any]
    limits: dict[str, Any]
    expected: Expected


def drawn(number: int) -> Drawn:
    random = Random(number)
    limits: dict[str, Any] = {
        "step_timeout_s": 0.3,
        "max_steps": random.randint(1, 7),
        "max_observation_bytes": random.choice([2_000, 60_000]),
        "max_action_bytes": random.choice([3_000, 50_000]),
        "max_rejected_actions": random.randint(1, 4),
        "reward_aggregate": random.choice(["last", "sum"]),
        "reward_range": random.choice([None, None, [0.0, 1.0], [-2.0, 3.5]]),
        "truncation_reward": random.choice([None, None, -1.5]),
    }
    length = limits["max_steps"] * limits["max_rejected_actions"]
    actions = [_action(random, limits) for _ in range(length)]
    return Drawn(actions, limits, expected(actions, limits))


def _action(random: Random, limits: dict[str, Any]) -> Any:
    plain: dict[str, Any] = {
        "reward": random.choice([None, 0, 0.25, 1, True, -1.0, 7.5, 1e300, "nan", "inf", "-inf"]),
        "text": random.choice(WORDS),
        "done": random.random() < 0.2,
    }
    odd = random.random()
    if odd < 0.7:
        return plain
    odd_ones: list[dict[str, Any] | list[int]] = [
        {**plain, random.choice(NAMES): random.randint(0, 9)},
        {**plain, "secs": "long"},
        {**plain, "done": None},
        [1, 2],
        {**plain, "op": random.choice(["raise", "raise_empty", "raise_validation"])},
        {**plain, "op": "unserialisable"},
        {**plain, "op": "sleep", "secs": 0.8},
        {**plain, "text": "", "size": limits["max_observation_bytes"] + random.randint(0, 99)},
        {**plain, "blob": "b" * (limits["max_action_bytes"] + random.randint(0, 99))},
    ]
    return random.choice(odd_ones)


def expected(actions: Sequence[Any], limits: dict[str, Any]) -> Expected:
    """The outcome by the rules, in the order in which they apply."""
    rewards: list[float | None] = []
    refused = 0

    def errored(cause: str) -> Expected:
        return Expected("errored", cause, None, len(rewards))

    for action in actions:
        if len(rewards) == limits["max_steps"]:
            break
        frame = json.dumps({"type": "step", "data": action})
        if isinstance(action, dict) and len(frame) > limits["max_action_bytes"]:
            return errored("action_too_large")
        if not _fits(action):
            refused += 1
            if refused == limits["max_rejected_actions"]:
                return errored("action_rejected")
            continue
        refused = 0
        match action.get("op", "noop"):
            case "raise" | "raise_empty" | "raise_validation" | "unserialisable":
                return errored("env_exception")
            case "sleep":
                return errored("step_timeout")
        if action.get("size", 0) >= limits["max_observation_bytes"]:
            return errored("observation_too_large")
        given = action["reward"]
        rewards.append(None if given is None or isinstance(given, str) else float(given))
        if action["done"]:
            return _ended(rewards, limits)
    return _cut_off(rewards, limits)


def _fits(action: Any) -> bool:
    known = {"op", "secs", "size", "text", "blob", "path", "reward", "done", "metadata"}
    return (
        isinstance(action, dict)
        and set(action) <= known
        and isinstance(action["done"], bool)
        and not isinstance(action.get("secs"), str)
    )


def _ended(rewards: list[float | None], limits: dict[str, Any]) -> Expected:
    if rewards[-1] is None:
        return Expected("errored", "reward_missing", None, len(rewards))
    is_sum = limits["reward_aggregate"] == "sum"
    total = math.fsum(r for r in rewards if r is not None) if is_sum else rewards[-1]
    return _in_range(total, rewards, limits)


def _cut_off(rewards: list[float | None], limits: dict[str, Any]) -> Expected:
    if limits["truncation_reward"] is not None:
        return Expected("scored", "", limits["truncation_reward"], len(rewards))
    numbers = [r for r in rewards if r is not None]
    if not numbers:
        return Expected("errored", "reward_missing", None, len(rewards))
    if limits["reward_aggregate"] == "sum":
        return _in_range(math.fsum(numbers), rewards, limits)
    return Expected("errored", "step_limit", None, len(rewards))


def _in_range(total: float, rewards: list[float | None], limits: dict[str, Any]) -> Expected:
    low, high = limits["reward_range"] or (-math.inf, math.inf)
    if not low <= total <= high:
        return Expected("errored", "reward_invalid", None, len(rewards))
    return Expected("scored", "", total, len(rewards))


def outcome(rollout: Rollout) -> Expected:
    cause = "" if rollout.cause == "grading" else rollout.cause
    state = "scored" if rollout.cause == "grading" else rollout.state
    return Expected(state, cause, rollout.reward, rollout.n_steps)


@pytest.mark.parametrize("start", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_unseen_cases_end_as_the_rules_say(
    people: People, fault_url: str, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    cases = [drawn(number) for number in range(start, start + (60 if start == 0 else 250))]
    version = version_for(people, fault_url, {"slot_wait_s": 30.0}, [{}] * len(cases))
    for task, case in zip(version.tasks.order_by("pk"), cases, strict=True):
        task.limits = case.limits
        task.save()
    run = make_run(
        people.project,
        version=version,
        model=make_endpoint(people.project, "http://127.0.0.1:9", kind="openai"),
        rubric_version=wide_rubric(people),
        concurrency=6,
    )
    rollouts = list(run.rollouts.select_related("task").order_by("task__pk"))
    agents = {
        rollout.pk: Scripted({}, case.actions, lambda event: None)
        for rollout, case in zip(rollouts, cases, strict=True)
    }
    monkeypatch.setattr(
        engine,
        "conversation_for",
        lambda prepared, client, support, plan: agents[plan.rollout.pk],
    )
    execute(run)
    wrong = []
    for rollout, case in zip(rollouts, cases, strict=True):
        rollout.refresh_from_db()
        if outcome(rollout) != case.expected:
            wrong.append((case, outcome(rollout), rollout.message))
    assert not wrong, f"{len(wrong)} of {len(cases)}: {wrong[0]}"
    assert len({case.expected.cause for case in cases}) >= 8, "the draw is too narrow"
    for rollout in rollouts:
        kinds = [event.kind for event in events(rollout.stream_id)]
        assert kinds.count("rollout.ended") == 1
        assert kinds.count("action") >= rollout.n_steps
        if rollout.state == "errored" and rollout.cause != "grading":
            assert rollout.message.endswith("No score.")
            assert rollout.reward is None
    assert not run.rollouts.filter(state="errored", score__isnull=False).exists()
    assert not run.rollouts.exclude(state="scored").filter(score=F("reward")).exists()
    assert_gapless()
