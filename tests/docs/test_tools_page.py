"""The code of the page on tools and verifiers runs as it stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.kinds import KINDS
from orchestrator.environments.sandbox import Sandbox, detect, private_root, remove_folder
from orchestrator.environments.terminal.files import lay_out
from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.environments.terminal.verifier import verify
from tests.docs.pages import names, python_blocks, section
from tests.environments.conftest import needs_bubblewrap

PAGE = "docs/how-to/tools-and-verifiers.md"
BLOCKS = python_blocks(PAGE)


@needs_bubblewrap
def test_the_functions_are_served_and_called(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(BLOCKS["try it"], "example", "exec"), namespace)  # noqa: S102 - our own document
    assert namespace["play"](BLOCKS["functions.py"], tmp_path) == 1.0


@needs_bubblewrap
@pytest.mark.parametrize(
    ("report", "reward"),
    [('{"a": 1, "b": 2}', 1.0), ('{"a": 1}', 0.5), ("broken", 0.0), (None, 0.0)],
)
def test_the_verifier_judges(report: str | None, reward: float) -> None:
    task = TaskSpec.from_json(
        {
            "verifier": BLOCKS["verifier.py"],
            "verifier_language": "python",
            "verifier_files": {"expected.json": json.dumps({"a": 1, "b": 2})},
        }
    )
    sandbox, root = Sandbox(detect()), private_root()
    try:
        files = {"report.json": report} if report is not None else {}
        folder = lay_out(root, files, sandbox.isolation)
        assert verify(task, folder, "", sandbox=sandbox, root=root) == reward
    finally:
        remove_folder(root)


def test_the_fields_of_a_task_are_all_told() -> None:
    told = names(section(PAGE, "Python functions")) | {"tolerance"}
    assert told == {field.name for field in KINDS["tools"].task_fields}
