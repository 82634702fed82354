"""The code of the how-to pages runs as it stands there."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.operators import OFFLINE, Operator
from orchestrator.environments.conformance.catalogue import CATALOGUE
from orchestrator.environments.conformance.running import grade
from orchestrator.environments.conformance.subject import Exercise, Subject
from orchestrator.environments.kinds import KINDS as ENVIRONMENT_KINDS
from orchestrator.environments.models import EnvironmentKind
from rubrics.kinds import KINDS
from rubrics.kinds.python import trace_of
from rubrics.types import Step, Transcript
from tests.docs.pages import ROOT, python_blocks
from tests.environments.conftest import ServerFactory, own_server

__all__ = ["own_server"]


def run(code: str, **given: Any) -> dict[str, Any]:
    """The names that the code leaves behind."""
    namespace: dict[str, Any] = {"__name__": "example", **given}
    exec(compile(code, "example", "exec"), namespace)  # noqa: S102 - our own documents
    return namespace


def test_an_environment_kind_is_served_and_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = python_blocks("docs/how-to/add-an-environment-kind.md")
    package = tmp_path / "guess_example"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("server.py", "kind.py"):
        (package / name).write_text(blocks[name], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = importlib.import_module("guess_example.kind").GuessKind()
    specify = kind.server

    def server(**arguments: Any) -> Any:
        # A server finds modules below the repository only; the example lies elsewhere.
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        return replace(specify(**arguments), env={"PYTHONPATH": path})

    monkeypatch.setattr(kind, "server", server)
    assert run(blocks["try it"])["play"](kind, tmp_path / "data") == 1.0
    assert kind.action_of("I do not know") == "I do not know"


async def test_a_grader_is_a_function_over_real_episodes(own_server: ServerFactory) -> None:
    grader = run(python_blocks("docs/how-to/check-an-environment.md")["a grader"])[
        "first_observation_says_something"
    ]
    server = own_server("guess_env")
    await server.ready()
    subject = Subject(server.base_url, ENVIRONMENT_KINDS["url"], (Exercise("default", "Act."),))
    assert (await grade(grader, subject)).finding.status == "pass"


def test_every_check_has_its_line() -> None:
    text = (ROOT / "docs/how-to/check-an-environment.md").read_text(encoding="utf-8")
    assert [name for name in CATALOGUE if f"| `{name}` |" not in text] == []


def test_the_lists_that_the_page_names_agree() -> None:
    assert set(ENVIRONMENT_KINDS) == set(EnvironmentKind.values)


def test_a_criterion_kind_grades(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = python_blocks("docs/how-to/add-a-criterion.md")
    kind = run(blocks["rubrics/kinds/short_answer.py"])["KIND"]
    monkeypatch.setitem(KINDS, kind.name, kind)
    run(blocks["try it"])


def test_the_python_criterion_of_the_page_grades() -> None:
    grade = run(python_blocks("docs/how-to/write-a-rubric.md")["a criterion"])["grade"]
    steps = [Step(index=i, seq=10 + i, action="") for i in range(1, 6)]
    said = grade(trace_of(Transcript(steps=tuple(steps))))
    assert said == {"value": pytest.approx(1 / 3), "reason": "5 steps", "cites": [14, 15]}
    assert "not_applicable" in grade(trace_of(Transcript()))


def test_an_edit_operator_proposes_edits_that_apply() -> None:
    blocks = python_blocks("docs/how-to/add-an-edit-operator.md")
    made = run(blocks["optimizer/operators/room.py"])
    names = {name: made[name] for name in ("room_for_actions", "propose")}
    listed = run(blocks["list it"], Operator=Operator, **names)
    run(blocks["try it"], OPERATOR=listed["OPERATOR"], **names)


def test_the_page_lists_every_operator() -> None:
    text = (ROOT / "docs/how-to/add-an-edit-operator.md").read_text(encoding="utf-8")
    assert [name for name in OFFLINE if f"| `{name}` |" not in text] == []


def test_a_training_backend_trains_as_the_local_one(tmp_path: Path) -> None:
    blocks = python_blocks("docs/how-to/add-a-training-backend.md")
    session = run(blocks["training/backends/threaded.py"])["ThreadedSession"]
    run(blocks["try it"], ThreadedSession=session, folder=tmp_path)


def test_a_recipe_for_tinker_runs_on_our_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tinker")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    left = run(python_blocks("docs/how-to/train-on-tinker.md")["a recipe"], folder=tmp_path)
    assert left["losses"] == sorted(left["losses"], reverse=True)
    assert len(left["answer"].sequences) == 2
    assert all(0 < len(each.tokens) <= 8 for each in left["answer"].sequences)
