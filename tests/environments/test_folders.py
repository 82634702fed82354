"""An environment as a folder: what is read, what is complained of, what is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optimizer.harness import Harness
from orchestrator.environments import folders
from orchestrator.environments.folders import FolderInvalid, read_files, read_folder
from orchestrator.environments.models import Environment, EnvironmentVersion, Task
from orchestrator.environments.serving import server_spec
from rubrics.models import RubricVersion
from tests.base import People

CONFIG = """\
name: Little questions
kind: qa
about: For people.
description: For agents.
settings: {max_steps: 3}
resources: {slots: 4}
"""
TASKS = [
    {"key": "a", "split": "train", "prompt": "1 + 1?", "answers": ["2"], "match": "number",
     "group": "sums", "difficulty": 0.5, "reference": [{"role": "assistant", "content": "2"}]},
    {"key": "b", "split": "test", "prompt": "Capital?", "answers": ["Rome"], "seeds": [3]},
]  # fmt: skip
RUBRIC = {"criteria": [{"id": "ok", "name": "Right", "kind": "environment_reward", "weight": 1}]}


def files(**changed: str | None) -> dict[str, bytes]:
    given: dict[str, str | None] = {
        "environment.yaml": CONFIG,
        "tasks.jsonl": "".join(json.dumps(task) + "\n" for task in TASKS),
        "rubric.json": json.dumps(RUBRIC),
        "harness/instructions.md": "Be brief.\n",
        **{name.replace("__", "/").replace("_", "."): text for name, text in changed.items()},
    }
    return {name: text.encode() for name, text in given.items() if text is not None}


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    for name, data in {**files(), "README.md": b"\xff", "harness/.hidden": b"x"}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    found = read_folder(tmp_path)
    assert (found.name, found.kind, found.slug) == ("Little questions", "qa", "little-questions")
    assert (found.about, found.description) == ("For people.", "For agents.")
    assert (found.settings, found.resources) == ({"max_steps": 3}, {"slots": 4})
    first, second = found.tasks
    assert (first.key, first.family, first.difficulty) == ("a", "sums", 0.5)
    assert first.spec is not None
    assert first.spec["answers"] == ["2"]
    assert (first.reset, second.reset) == ({"task": "a"}, {"task": "b"})
    assert (second.split, second.seeds) == ("test", [3])
    assert found.harness is not None
    assert found.harness.instructions == "Be brief.\n"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    found = read_files(files())
    folders.write_folder(found, tmp_path / "out")
    assert read_folder(tmp_path / "out") == found
    with pytest.raises(FolderInvalid, match="is not empty"):
        folders.write_folder(found, tmp_path / "out")


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({"environment_yaml": None}, ["environment.yaml: is missing"]),
        ({"environment_yaml": "[1"}, ["environment.yaml: not YAML"]),
        ({"environment_yaml": "- a"}, ["environment.yaml: accepts fields"]),
        (
            {"environment_yaml": "name: ''\nkind: quiz\ncolour: red\nsource: 7"},
            ["name accepts 1 to 120", "kind is 'quiz'; accepts", "colour is unknown", "source acc"],
        ),
        ({"environment_yaml": CONFIG + "source: {a: 1}\n"}, []),
        (
            {"environment_yaml": "name: x\nkind: qa\nsettings: {steps: 1}"},
            ["settings: steps is unknown; accepts connect_timeout_s"],
        ),
        (
            {"environment_yaml": "name: x\nkind: qa\nresources: {slots: 0}"},
            ["resources: slots must be between 1 and 1024"],
        ),
        ({"environment_yaml": "name: x\nkind: sql\nsource: {engine: x}"}, ["source: engine"]),
        ({"tasks_jsonl": None}, ["tasks.jsonl: is missing"]),
        (
            {"tasks_jsonl": '{"prompt": "?", "answers": ["x"]}\n{"prompt": "?"}\nnot json\n'},
            ["tasks.jsonl, line 2: answers", "tasks.jsonl, line 3"],
        ),
        (
            {"tasks_jsonl": '{"prompt": "?", "answers": ["x"], "anwsers": ["y"]}'},
            ["anwsers is no field of a task of kind qa"],
        ),
        ({"rubric_json": "{}"}, ["rubric.json: criteria"]),
        ({"rubric_json": "{"}, ["rubric.json: "]),
        ({"harness__extra_txt": "x"}, ["harness/: extra.txt: not part of a harness"]),
    ],
)
def test_every_problem_is_named(changed: dict[str, str | None], problems: list[str]) -> None:
    if not problems:
        read_files(files(**changed))
        return
    with pytest.raises(FolderInvalid) as caught:
        read_files(files(**changed))
    for problem in problems:
        assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("2026-11-29", "write a date in quotes"),
        (".nan", "not JSON compliant"),
        ('"a\\0b"', "NUL character"),
        ("{1: one}", "no text"),
        ("&me [*me]", "ircular"),
    ],
)
def test_what_no_database_keeps_is_refused_by_its_field(value: str, problem: str) -> None:
    text = f"name: Words\nkind: sql\nsource: {{schema: {value}}}\n"
    with pytest.raises(FolderInvalid, match=problem) as refused:
        read_files(files(environment_yaml=text))
    assert "environment.yaml: source " in str(refused.value)


def test_links_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderInvalid, match="no such folder"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "environment.yaml").write_text(CONFIG)
    (tmp_path / "tasks.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(FolderInvalid, match="links are not followed"):
        read_folder(tmp_path)


def test_long_lists_of_problems_are_counted() -> None:
    with pytest.raises(FolderInvalid, match="and 31 more"):
        read_files(files(tasks_jsonl='{"prompt": "?"}\n' * 51))


@pytest.mark.django_db
def test_storing_twice_changes_nothing_and_a_change_makes_a_version(people: People) -> None:
    def counts() -> tuple[int, ...]:
        models = (Environment, EnvironmentVersion, Task, RubricVersion)
        return tuple(model.objects.count() for model in models)

    found = read_files(files())
    first = folders.store(actor=people.editor, project=people.project, environment=found)
    assert counts() == (1, 1, 2, 1)
    assert first.version.created_by == people.editor
    assert first.harness is not None
    again = folders.store(actor=people.editor, project=people.project, environment=found)
    assert (again.version, again.rubric, again.harness) == (
        first.version,
        first.rubric,
        first.harness,
    )
    assert counts() == (1, 1, 2, 1)
    changed = read_files(files(environment_yaml=CONFIG.replace("For agents", "For all agents")))
    third = folders.store(actor=people.editor, project=people.project, environment=changed)
    assert (third.version.number, counts()) == (2, (1, 2, 4, 1))
    assert server_spec(third.version).name == f"v{third.version.pk}"


@pytest.mark.django_db
def test_a_stored_version_reads_as_the_folder_it_came_from(people: People) -> None:
    found = read_files(files())
    stored = folders.store(actor=people.owner, project=people.project, environment=found)
    version = EnvironmentVersion.objects.get(pk=stored.version.pk)
    same = folders.environment_of(version, rubric=RUBRIC, harness=Harness("Be brief.\n"))
    assert same == found


@pytest.mark.django_db
def test_the_name_of_an_environment_of_another_kind_is_refused(people: People) -> None:
    from django.core.exceptions import PermissionDenied

    found = read_files(files())
    folders.store(actor=people.owner, project=people.project, environment=found)
    other = read_files(
        files(
            environment_yaml="name: Little questions\nkind: sql",
            tasks_jsonl='{"prompt": "?", "schema": "CREATE TABLE t (a)", "solution": "SELECT 1"}',
        )
    )
    with pytest.raises(FolderInvalid, match="of kind qa; choose another name"):
        folders.store(actor=people.owner, project=people.project, environment=other)
    with pytest.raises(PermissionDenied):
        folders.store(actor=people.member, project=people.project, environment=found)
