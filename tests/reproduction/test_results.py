"""Sizes, tasks and cells of the full experiment, and what is read out of its results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from orchestrator.reproduction import pictures, results
from orchestrator.reproduction.cells import SIZES, Cell, Size, grid, manifest_of
from orchestrator.reproduction.grid import (
    MAX_ATTEMPTS,
    CellFailed,
    Setting,
    read_results,
    run_grid,
)
from orchestrator.reproduction.player import Player, author_rows
from orchestrator.reproduction.world import World, make_world
from training.jobs import client
from training.prepare import make_tiny
from training.tokenizer import ChatTokenizer

SMALL = replace(SIZES["small"], train=9, select=4, test=4, pool=7)
EXAMPLES = Path(settings.BASE_DIR) / "examples"


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(SMALL, examples=EXAMPLES)


def test_no_task_is_shown_trained_on_and_measured_at_once(world: World) -> None:
    parts = [world.train, world.select, world.test, world.pool]
    hashes = [task.content_hash for part in parts for task in part]
    assert len(set(hashes)) == len(hashes) == 9 + 4 + 4 + 7
    shown = {demonstration.source for demonstration in world.harness.demonstrations}
    assert len(shown) == SMALL.demonstrations
    assert shown.isdisjoint(task.key for task in world.train)
    messages = world.messages(world.test[0])
    assert messages[-1] == {"role": "user", "content": world.test[0].prompt}
    assert world.test[0].answer not in messages[-1]["content"]


@hypothesis_settings(max_examples=20)
@given(seed=st.integers(0, 1000), groups=st.integers(1, 4))
def test_every_task_comes_once_in_each_pass(world: World, seed: int, groups: int) -> None:
    steps = 9  # nine tasks: so many steps are `groups` whole passes
    drawn = [t.key for step in range(1, steps + 1) for t in world.tasks_of_step(seed, step, groups)]
    for first in range(0, len(drawn), 9):
        assert sorted(drawn[first : first + 9]) == sorted(task.key for task in world.train)


def test_cells_of_a_seed_differ_in_lambda_alone() -> None:
    cells = grid([0, 1], [0.0, 0.05])
    assert [cell.name for cell in cells] == ["s0-l0", "s0-l0.05", "s1-l0", "s1-l0.05"]
    one, two = (
        manifest_of(cell, SMALL, model=Path("/model"), threads=1).to_json() for cell in cells[:2]
    )
    assert (one["objective"].pop("lambda_env"), two["objective"].pop("lambda_env")) == (0.0, 0.05)
    assert one == two


def test_the_pool_is_made_of_what_the_author_did(world: World, tmp_path: Path) -> None:
    tokenizer = ChatTokenizer.from_folder(make_tiny(tmp_path / "tiny"))
    rows = author_rows(world, tokenizer)
    assert len(rows) == SMALL.pool
    for row, task in zip(rows, world.pool, strict=True):
        said = {
            kind: tokenizer.decode(
                [i for i, k in zip(row["ids"], row["kinds"], strict=True) if k == kind]
            )
            for kind in ("action", "env_output")
        }
        command, output, answer = (message["content"] for message in task.reference)
        assert said["action"] == command + answer
        assert said["env_output"] == output


def line(value: float, seed: int, **fields: Any) -> dict[str, Any]:
    return {
        "seed": seed,
        "lambda": value,
        "size": SMALL.fingerprint(),
        "chosen_step": 4,
        "base_test": {"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0},
        "test": {"a": 1.0, "b": 0.0, "c": 0.0, "d": 1.0},
        "select": [[0, 0.2], [4, 0.4], [8, 0.3]],
        "pool_ce": [[0, 6.0], [4, 6.1], [8, 5.9]],
        "reward": [[1, 0.1], [2, None]],
        "train_ce": [[1, None]],
        "zero_advantage_share": 0.5,
        "observation_share": 0.6,
        **fields,
    }


ECHO = {
    "select": [[0, 0.2], [4, 0.5], [8, 0.6]],
    "pool_ce": [[0, 6.0], [4, 4.0], [8, 3.0]],
    "test": {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0},
}


def test_a_row_per_lambda_with_what_differs_from_grpo() -> None:
    found = results.summary(
        [line(0.0, 0), line(0.0, 1), line(0.05, 0, **ECHO), line(0.05, 1, **ECHO)]
    )
    grpo, echo = found.rows
    assert (grpo.value, echo.value, echo.seeds) == (0.0, 0.05, (0, 1))
    assert (echo.base_test.mean, echo.test.mean, echo.last_ce.mean) == (0.25, 1.0, 3.0)
    assert (grpo.steps_to_best.mean, echo.steps_to_best.mean, echo.never) == (4.0, 4.0, 0)
    assert echo.compared is not None
    assert echo.compared.difference == 0.5
    said = " ".join(results.sentences(found))
    assert "GRPO alone: the surprise at the environment stays: 6.00 to 5.90" in said
    assert "λ 0.05: the surprise at the environment falls: 6.00 to 3.00 nats a token (-50%)" in said
    assert len(results.table(found)) == 3


def test_one_seed_settles_nothing_and_a_failed_machine_is_no_zero() -> None:
    lost = line(0.05, 0, **{**ECHO, "test": {"a": None, "b": 1.0, "c": 1.0, "d": 1.0}})
    late = line(0.2, 0, select=[[0, 0.2], [4, 0.1], [8, 0.3]])
    found = results.summary([line(0.0, 0), lost, late])
    row = found.row(0.05)
    assert row is not None
    assert (row.test.mean, row.test.sd) == (1.0, None)
    assert "not settled" in " ".join(results.sentences(found))
    slow = found.row(0.2)
    assert slow is not None
    assert (slow.steps_to_best.mean, slow.never) == (None, 1)
    assert str(results.figure([float("nan"), None])) == "–"


def test_shares_and_curves_come_from_what_the_trainer_told() -> None:
    step = {"kind": "step", "groups": 2, "reward_mean": 0.5, "update_s": 2.0}
    found = results.measured(
        [
            {"kind": "started", "step": 0},
            {"kind": "evaluated", "step": 0, "mean": 0.25, "pool_ce": 6.0},
            {**step, "step": 1, "groups_without_spread": 2, "world_ce_selected_per_token": None},
            {**step, "step": 2, "groups_without_spread": 1, "world_ce_selected_per_token": 4.0},
        ]
    )
    assert found["zero_advantage_share"] == 0.75
    assert found["select"] == [[0, 0.25]]
    assert found["train_ce"] == [[1, None], [2, 4.0]]
    rows = [{"kinds": ["context", "action", "env_output", "scaffold", "env_output"]}]
    assert results.observation_share(rows) == pytest.approx(2 / 3)
    assert results.observation_share([]) is None


def test_pictures_are_svg_with_a_line_per_seed_and_one_for_the_mean(tmp_path: Path) -> None:
    lines = [line(0.0, 0), line(0.0, 1), line(0.05, 0, **ECHO)]
    for path in pictures.draw(lines, tmp_path):
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        drawn = [each for each in root.iter() if each.tag.endswith("polyline")]
        assert len(drawn) == 5
        assert "nan" not in path.read_text(encoding="utf-8")
    nothing = pictures.svg(pictures.PICTURES[0], [line(0.0, 0, pool_ce=[[0, None]])])
    assert nothing.endswith("</svg>\n")


def test_results_of_another_size_are_not_mixed_in(tmp_path: Path) -> None:
    other: Size = replace(SMALL, steps=3)
    (tmp_path / "results.jsonl").write_text(
        json.dumps(line(0.0, 0)) + "\n" + json.dumps(line(0.0, 1, size=other.fingerprint())) + "\n"
    )
    assert [each["seed"] for each in read_results(tmp_path, SMALL)] == [0]
    assert read_results(tmp_path / "nowhere", SMALL) == []


def test_a_trainer_that_always_fails_ends_the_grid_and_names_its_log(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []

    def start(folder: Path, **_: Any) -> subprocess.Popen[bytes]:
        started.append(folder)
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])

    @contextmanager
    def playing(_: Setting) -> Iterator[tuple[World, Player]]:
        yield world, Player(world, model_url="http://127.0.0.1:9", environment_url="unix:///none")

    monkeypatch.setattr(client, "start_runner", start)
    monkeypatch.setattr("orchestrator.reproduction.grid._playing", playing)
    setting = Setting(
        out=tmp_path / "out", model=make_tiny(tmp_path / "tiny"), examples=EXAMPLES, size=SMALL
    )
    with pytest.raises(CellFailed, match=r"s0-l0: exit code 7; see .*s0-l0/runner\.log"):
        run_grid(setting, grid([0], [0.0]), print)
    assert len(started) == MAX_ATTEMPTS


def test_names_of_cells_are_folders() -> None:
    assert Cell(3, 0.005).name == "s3-l0.005"


def test_the_full_command_runs_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as to its first need, a model: that door had once no way in."""
    monkeypatch.setattr(settings, "MODEL_DIR", tmp_path / "missing")
    with pytest.raises(CommandError, match=r"no model|isolation|bubblewrap"):
        call_command("reproduce", "echo", full=True, out=tmp_path / "results", size="small")
