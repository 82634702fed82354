"""The world of four files, what is claimed of it, and the experiment through its command."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.reproduction import quick
from training.reproduction.claims import claims, outcome
from training.reproduction.experiment import Plan, Training
from training.reproduction.files import choices, exercises, parts, run
from training.reproduction.rollouts import beginning, oracle, rollout
from training.types import TokenKind

ROOT = Path(__file__).resolve().parents[2]


@given(st.integers(0, 50))
def test_every_exercise_is_in_one_part_and_what_cannot_be_inferred_is_trained(seed: int) -> None:
    found = parts(seed)
    everything = [*found.train, *found.validation, *found.final]
    assert sorted(e.command for e in everything) == sorted(e.command for e in exercises())
    assert len(found.validation) == len(found.final) == 6
    held_out = {e.command.split()[0] for e in (*found.validation, *found.final)}
    assert held_out <= {"head", "grep"}


def test_each_command_prints_something_and_no_two_questions_are_alike() -> None:
    found = exercises()
    assert all(each.output.endswith("\n") for each in found)
    assert len({each.question for each in found}) == len({e.command for e in found}) == len(found)
    assert run("wc city.csv") == "5 5 40 city.csv\n"
    with pytest.raises(ValueError, match="unknown command"):
        run("rm todo.txt")


@given(st.integers(0, 20), st.integers(2, 8))
def test_the_right_command_can_always_be_said_and_no_held_out_one(seed: int, count: int) -> None:
    found = parts(seed)
    trained = {each.command for each in found.train}
    for exercise in found.train[:5]:
        offered = choices(exercise, found.train, count, seed)
        assert exercise.command in offered
        assert len(set(offered)) == count
        assert set(offered) <= trained


def test_a_row_trains_the_output_and_the_command_alone() -> None:
    exercise = exercises()[0]
    row = rollout(exercise, "ls", name="r", reward=1.0, logprobs=[-1.0, -2.0, -3.0])
    of = {
        kind: "".join(chr(i) for i, k in zip(row.ids, row.kinds, strict=True) if k is kind)
        for kind in TokenKind
    }
    assert of[TokenKind.ACTION] == "ls\n"
    assert of[TokenKind.ENV_OUTPUT] == run("ls")
    assert of[TokenKind.WARNING] == "[out]\n"
    assert row.logprobs is not None
    assert [lp for lp in row.logprobs if lp] == [-1.0, -2.0, -3.0]
    assert beginning(exercise, "ls").ids == row.ids[: len("list files\n$ ls\n")]
    assert [each.reward for each in oracle([exercise])] == [1.0]


def line(kind: str, step: int, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "step": step, **fields}


def history(finals: list[float], validations: list[float], rewards: list[float]) -> list[Any]:
    measured = [
        line("evaluation", step, train=0.0, validation=validation, final=final)
        for step, (validation, final) in enumerate(zip(validations, finals, strict=True))
    ]
    steps = [
        line("step", step, reward=reward, zero_advantage_share=0.5, n_action=10, n_env=30)
        for step, reward in enumerate(rewards, start=1)
    ]
    return [*measured, *steps]


def test_the_step_is_chosen_on_one_part_and_judged_on_another() -> None:
    # The final part alone would choose step 3, the last step is 4.
    found = outcome(history([5.0, 4.0, 2.0, 1.0, 4.5], [5.0, 4.0, 1.0, 3.0, 4.0], [0.2] * 8))
    assert (found.chosen_step, found.chosen, found.last) == (2, 2.0, 4.5)
    assert found.observation_share == 0.75
    with pytest.raises(ValueError, match="no evaluation"):
        outcome(history([5.0], [5.0], [0.2]))


LEARNS, IDLES = [0.2] * 5 + [0.9] * 5, [0.3] * 10


@pytest.mark.parametrize(
    ("grpo_ce", "echo_ce", "grpo_reward", "echo_reward", "failing"),
    [
        (5.0, 2.0, LEARNS, LEARNS, []),
        (2.0, 2.0, LEARNS, LEARNS, [1]),
        (5.0, 4.5, LEARNS, LEARNS, [0]),
        (5.0, 2.0, IDLES, LEARNS, [2]),
        (5.0, 2.0, LEARNS, IDLES, [3]),
    ],
)
def test_each_claim_can_fail(
    grpo_ce: float,
    echo_ce: float,
    grpo_reward: list[float],
    echo_reward: list[float],
    failing: list[int],
) -> None:
    grpo = outcome(history([5.0, grpo_ce], [5.0, grpo_ce], grpo_reward))
    echo = outcome(history([5.0, echo_ce], [5.0, echo_ce], echo_reward))
    stated = claims(grpo, echo)
    assert [number for number, claim in enumerate(stated) if not claim.holds] == failing


def short(folder: Path, value: float) -> list[dict[str, Any]]:
    plan = Plan(steps=3, groups=2, samples=3, every=3)
    return list(Training(folder, plan, seed=0, value=value).lines())


def test_two_trainings_begin_alike_and_a_repeat_is_bitwise(tmp_path: Path) -> None:
    grpo, again, echo = (short(tmp_path / str(n), value) for n, value in enumerate((0, 0, 0.05)))
    assert grpo == again
    assert grpo[0] == echo[0]
    assert grpo[1]["reward"] == echo[1]["reward"]
    assert grpo[1]["env_loss"] is None
    assert echo[1]["env_loss"] > 2
    assert echo[-1]["final"] < echo[0]["final"]
    assert echo[-1]["final"] != grpo[-1]["final"]


def test_a_child_whose_parent_is_gone_ends_by_itself() -> None:
    command = [sys.executable, "-m", "training.reproduction.experiment"]
    done = subprocess.run(
        [*command, "--value", "0", "--steps", "1", "--parent", "1"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_a_claim_that_is_not_seen_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {0.0: history([5.0, 5.0], [5.0, 5.0], LEARNS)}
    monkeypatch.setattr(
        quick,
        "run_quick",
        lambda *, seed: {**figures, 0.05: history([5.0, 2.0], [5.0, 2.0], LEARNS)},
    )
    call_command("reproduce", "echo", json=tmp_path / "lines.jsonl")
    said = capsys.readouterr().out
    assert "NOT SEEN" not in said
    kept = [json.loads(text) for text in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert kept == list(itertools.chain(*quick.run_quick(seed=0).values()))
    monkeypatch.setattr(
        quick,
        "run_quick",
        lambda *, seed: {**figures, 0.05: figures[0.0]},
    )
    with pytest.raises(CommandError, match="Not everything"):
        call_command("reproduce", "echo")
    assert "NOT SEEN" in capsys.readouterr().out


@pytest.mark.slow
def test_the_experiment_shows_what_it_claims() -> None:
    """One to two minutes of two cores; no download."""
    found = quick.run_quick(seed=0)
    stated = claims(outcome(found[0.0]), outcome(found[0.05]))
    assert [claim.sentence for claim in stated if not claim.holds] == []
