"""Collapse is seen before the reward shows it, and what a healthy run does is no alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.builders import make_row
from training.alarms import Alarm, Level, Signal, look
from training.behaviour import action_spans, behaviour_metrics, repeated_share
from training.jobs.attempts import Failure, verdict
from training.jobs.folder import Evaluation
from training.markers import role_marker_test
from training.selection import choose
from training.tokenizer import ChatTokenizer

CALM = {
    "reward_mean": 0.5,
    "world_ce_selected_per_token": 1.0,
    "observation_distinct_share": 0.8,
    "role_marker_share": 0.0,
    "entropy_mean": 0.7,
    "action_repeated_share": 0.05,
    "action_tokens_mean": 20.0,
}


def course(now: dict[str, Any], n: int = 8) -> list[Alarm]:
    steps = [{**CALM, "step": i} for i in range(1, n - 2)]
    return look([*steps, *({**CALM, **now, "step": i} for i in range(n - 2, n + 1))])


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (
            {"world_ce_selected_per_token": 0.3, "observation_distinct_share": 0.3},
            (Signal.SURPRISE, Level.PAUSE),
        ),
        ({"role_marker_share": 0.1}, (Signal.ROLES, Level.WARN)),
        ({"role_marker_share": 0.5, "reward_mean": 0.9}, (Signal.ROLES, Level.PAUSE)),
        ({"entropy_mean": 0.3}, (Signal.ENTROPY, Level.WARN)),
        ({"entropy_mean": 0.01}, (Signal.ENTROPY, Level.PAUSE)),
        ({"action_repeated_share": 0.7}, (Signal.REPETITION, Level.PAUSE)),
        ({"action_tokens_mean": 45.0}, (Signal.LENGTH, Level.WARN)),
        ({"action_tokens_mean": 90.0}, (Signal.LENGTH, Level.PAUSE)),
    ],
)
def test_what_collapses_is_told(now: dict[str, Any], expected: tuple[Signal, Level]) -> None:
    alarms = course(now)
    assert [(alarm.signal, alarm.level) for alarm in alarms] == [expected]
    assert alarms[0].sentence.endswith(".")


@pytest.mark.parametrize(
    "now",
    [
        {},
        # All siblings solve the task: alike, easy to predict, certain, and right.
        {
            "reward_mean": 0.9,
            "world_ce_selected_per_token": 0.2,
            "observation_distinct_share": 0.2,
            "entropy_mean": 0.05,
        },
        {"world_ce_selected_per_token": 0.1},
        {"entropy_mean": float("nan"), "reward_mean": None},
    ],
)
def test_a_healthy_run_is_left_alone(now: dict[str, Any]) -> None:
    assert course(now) == []


def test_a_beginning_is_no_course() -> None:
    assert look([]) == []
    assert look([CALM, {**CALM, "role_marker_share": 1.0}]) == []


def test_a_skipped_step_is_told_at_once() -> None:
    assert [a.signal for a in look([{**CALM, "step": 1, "is_skipped": True}])] == [
        Signal.NOT_FINITE
    ]


def test_behaviour_is_read_from_the_tokens_that_the_policy_wrote() -> None:
    row = make_row("AAAAEEAAC", logprobs=(0.0, *(-0.5,) * 9))
    assert action_spans(row) == [(1, 2, 3, 4), (7, 8)]
    metrics = behaviour_metrics([row], has_role_marker=lambda ids: 7 in ids)
    assert metrics == {
        "action_tokens_mean": 6.0,
        "action_repeated_share": 0.0,
        "role_marker_share": 1.0,
        "entropy_sampled": 0.5,
    }
    assert set(behaviour_metrics([]).values()) == {None}
    assert repeated_share([1, 2, 3, 4] * 3) == pytest.approx(5 / 9)


def test_role_markers_are_turns_and_transcripts(tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer.from_folder(tiny_folder)
    is_marked = role_marker_test(tiny_folder)
    assert is_marked is not None
    assert is_marked(tokenizer.encode("ls\nObservation: a.txt"))
    assert is_marked([*tokenizer.encode("ls"), tokenizer.eos_id, *tokenizer.encode("a")])
    assert not is_marked([*tokenizer.encode("cat user: x"), tokenizer.eos_id])
    assert role_marker_test(tiny_folder / "nowhere") is None


def test_the_earlier_of_equals_is_chosen_and_a_thin_evaluation_chooses_nothing() -> None:
    evaluations = [
        Evaluation(0, 0.5, 10, 0),
        Evaluation(2, 0.4, 10, 0),
        Evaluation(4, 0.4, 10, 0),
        Evaluation(6, 1.0, 1, 9),
    ]
    choice = choose(evaluations, last_step=6, min_coverage=0.8)
    assert choice.step == 2
    assert choice.reason.endswith("0.500 before training; no step does better than the start.")
    assert choose([], last_step=6, min_coverage=0.8).step == 6
    assert choose(evaluations[-1:], last_step=6, min_coverage=0.8).step == 6


def test_a_failure_is_tried_again_unless_it_is_the_same_twice() -> None:
    def failure(reason: str, kind: str = "OSError", step: int = 3) -> Failure:
        return Failure(step, kind, reason)

    assert verdict([]) == ""
    assert verdict([failure("disk full, 12 MB free")]) == ""
    assert "The same failure twice" in verdict(
        [failure("disk full, 12 MB free"), failure("disk full, 13.5 MB free")]
    )
    different = [failure("a"), failure("b"), failure("c")]
    assert verdict(different[:2]) == ""
    assert "3 attempts without a finished step" in verdict(different)
    assert verdict([failure("seed: not a number", "ConfigurationError")]) == "seed: not a number"
