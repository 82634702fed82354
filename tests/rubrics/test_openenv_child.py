"""Live rubrics of the real library, read in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rubrics.imports import openenv_child
from rubrics.imports.openenv import from_spec, to_spec
from rubrics.imports.scoring import score_tree
from rubrics.imports.tree import read_file

AUTHORS = """
from openenv.core.rubrics.base import Rubric
from openenv.core.rubrics.containers import Gate, RubricDict, RubricList, Sequential, WeightedSum
from openenv.core.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric

print("an author's module prints")

class Const(Rubric):
    def __init__(self, value):
        super().__init__()
        self.value = value
    def forward(self, action, observation):
        return self.value

class Game(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory):
        return 1.0

class Own(Rubric):
    def __init__(self):
        super().__init__()
        self.parts = RubricList([Const(0.1), Const(0.2)])
    def forward(self, action, observation):
        return max(part(action, observation) for part in self.parts)

class Stricter(WeightedSum):
    def __call__(self, action, observation):
        return 0.0

rubric = Sequential(
    Gate(Const(0.9), threshold=0.5), WeightedSum([Const(0.6), Const(1.0)], weights=[0.75, 0.25])
)
games = RubricDict({"pong": Game(gamma=0.9), "chess": Own()})
stricter = Stricter([Const(0.5)], weights=[1.0])
gone = Own()
gone.parts = None

class Environment:
    def __init__(self):
        self.rubric = Gate(Const(1.0))

def build():
    return rubric

def broken():
    raise RuntimeError("no licence")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("openenv")
    found = tmp_path_factory.mktemp("authors")
    (found / "mine.py").write_text(AUTHORS)
    return found


def read(folder: Path, attribute: str) -> dict[str, Any]:
    asked = [sys.executable, openenv_child.__file__, f"mine:{attribute}"]
    answer = subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=120)
    found: dict[str, Any] = json.loads(answer.stdout)
    assert answer.returncode == ("failed" in found)
    return found


@pytest.mark.slow
def test_a_live_tree_is_read_and_worth_what_the_library_says(folder: Path) -> None:
    data = read(folder, "rubric")
    assert from_spec(to_spec(data).spec) == (data, ())
    scores = {"rubric_0.rubric": 0.9, "rubric_1.rubric_0": 0.6, "rubric_1.rubric_1": 1.0}
    assert score_tree(read_file(data), scores).value == pytest.approx(0.7, abs=1e-12)
    library = "import mine; print(mine.rubric(None, None))"
    said = subprocess.run(
        [sys.executable, "-c", library], cwd=folder, capture_output=True, text=True
    )
    assert float(said.stdout.split()[-1]) == pytest.approx(0.7, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attribute", "kind"),
    [("build", "sequential"), ("Environment", "gate"), ("stricter", "leaf"), ("gone", "leaf")],
)
def test_it_is_found_where_authors_keep_it(folder: Path, attribute: str, kind: str) -> None:
    assert read(folder, attribute)["tree"]["kind"] == kind


@pytest.mark.slow
def test_containers_parameters_and_own_classes_are_kept(folder: Path) -> None:
    tree = read(folder, "games")["tree"]
    pong, chess = tree["children"]
    assert pong["kind"] == "discounted" and pong["params"]["gamma"] == 0.9
    assert (pong["component"], pong["class"]) == ("pong", "mine:Game")
    assert chess["kind"] == "leaf" and len(chess["children"][0]["children"]) == 2
    assert "children" not in read(folder, "gone")["tree"]


@pytest.mark.slow
def test_a_failure_of_the_authors_code_is_told(folder: Path) -> None:
    assert read(folder, "broken") == {"failed": "RuntimeError: no licence"}
    assert "has no attribute" in read(folder, "nothing")["failed"]
