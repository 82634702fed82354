"""Rubrics from files and into them, by the operator's commands."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.projects.models import Project
from orchestrator.projects.services import create_first_admin, create_project
from rubrics.imports.tree import FORMAT
from rubrics.models import Rubric, RubricVersion

TREE = {
    "format": FORMAT,
    "tree": {
        "kind": "gate",
        "params": {"threshold": 0.5},
        "children": [{"kind": "leaf", "component": "tests"}],
    },
}
JUDGES = """
[judge]
judge = "anthropic/claude"
[[criterion]]
description = "Is it right?"
"""


@pytest.fixture
def project(db: None) -> Project:
    return create_project(actor=create_first_admin().user, name="P")


def run(command: str, *args: Any, **options: Any) -> str:
    out = StringIO()
    call_command(command, *map(str, args), stdout=out, stderr=StringIO(), **options)
    return out.getvalue()


def imported(project: Project, source: object, **options: Any) -> RubricVersion:
    run("import_rubric", source, project=project.pk, name="Imported", **options)
    return RubricVersion.objects.order_by("-pk")[0]


def test_each_format_is_found_out_and_comes_back(project: Project, tmp_path: Path) -> None:
    tree = tmp_path / "tree.json"
    tree.write_text(json.dumps(TREE))
    version = imported(project, tree)
    assert version.number == 1 and version.spec["criteria"][0]["kind"] == "imported"
    rubric = version.rubric_id
    assert json.loads(run("export_rubric", rubric, format="openenv")) == TREE

    judges = tmp_path / "judge.toml"
    judges.write_text(JUDGES)
    assert imported(project, judges).number == 2
    run("export_rubric", rubric, format="harbor", to=tmp_path / "out")
    assert "Is it right?" in (tmp_path / "out" / "judge.toml").read_text()

    ours = tmp_path / "ours.json"
    ours.write_text(run("export_rubric", rubric, number=1))
    assert imported(project, ours).spec == version.spec
    assert Rubric.objects.count() == 1


def test_losses_stop_an_import_until_they_are_accepted(project: Project, tmp_path: Path) -> None:
    (tmp_path / "quality.toml").write_text(JUDGES.replace("[judge]", "[judge]\ntimeout = 9"))
    (tmp_path / "checks.py").write_text("")
    (tmp_path / "task.toml").write_text("version = '1'")
    with pytest.raises(CommandError, match="3 things would not be carried over"):
        imported(project, tmp_path)
    assert not Rubric.objects.exists()
    said = run("import_rubric", tmp_path, project=project.pk, name="R", accept_losses=True)
    assert "Not carried over: checks.py: not carried over: no judge file" in said
    assert "Not carried over: quality.judge.timeout" in said
    assert Rubric.objects.get().name == "R"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "accepts an object"),
        ('{"criteria": [{"id": "a", "kind": "nonsense"}]}', "nonsense"),
        (json.dumps({"format": FORMAT, "tree": {"kind": "gate"}}), "tree.children"),
    ],
)
def test_what_is_no_rubric_is_refused(
    project: Project, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(CommandError, match=said):
        imported(project, tmp_path / "r.json")
    assert not Rubric.objects.exists()


def test_who_asks_for_what_is_not_there_is_told(project: Project, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no such file"):
        imported(project, tmp_path / "none.json")
    with pytest.raises(CommandError, match="There is no project 77"):
        run("import_rubric", "x", project=77, name="R")
    with pytest.raises(CommandError, match="no such version"):
        run("export_rubric", 5)


def test_what_has_no_form_there_is_told(project: Project, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"criteria": [{"id": "a", "kind": "exact"}]}')
    version = imported(project, tmp_path / "r.json")
    with pytest.raises(CommandError, match="has a form in harbor"):
        run("export_rubric", version.rubric_id, format="harbor")


def test_a_live_rubric_is_read_in_a_process_of_its_own(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a library that has the shape of OpenEnv's; the real one is in tests/rubrics."""
    library = tmp_path / "openenv" / "core" / "rubrics"
    library.mkdir(parents=True)
    for folder in (library.parent, library.parent.parent):
        (folder / "__init__.py").write_text("")
    (library / "__init__.py").write_text(
        "class Rubric:\n"
        "    def __init__(self, *children):\n"
        "        self.held = list(children)\n"
        "    def named_children(self):\n"
        "        return [(f'rubric_{i}', c) for i, c in enumerate(self.held)]\n"
        "class Sequential(Rubric):\n    pass\n"
    )
    (tmp_path / "mine.py").write_text(
        "from openenv.core.rubrics import Rubric, Sequential\n"
        "class Wins(Rubric):\n    pass\n"
        "rubric = Sequential(Wins(), Wins())\n"
    )
    monkeypatch.chdir(tmp_path)
    version = imported(project, "mine:rubric", python=sys.executable)
    tree = version.spec["criteria"][0]["params"]["tree"]
    assert [child["component"] for child in tree["children"]] == ["rubric_0", "rubric_1"]
    assert tree["children"][0]["class"] == "mine:Wins" and "mine" not in sys.modules
    with pytest.raises(CommandError, match="AttributeError"):
        imported(project, "mine:nothing")
    with pytest.raises(CommandError, match="cannot be started"):
        imported(project, "mine:rubric", python=str(tmp_path / "python"))
