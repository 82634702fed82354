"""`manage.py load_example`, and the examples of the kinds qa and sql themselves."""

from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.folders import FolderEnvironment, read_folder
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.environments.qa.answers import QaTask, grade
from orchestrator.environments.sql.observation import segments_of
from orchestrator.environments.sql.sqlite import SqliteEngine
from orchestrator.environments.sql.tasks import SqlTask
from orchestrator.jobs.models import Job
from orchestrator.projects.models import Project
from orchestrator.runs.models import Run
from tests.base import People

EXAMPLES = Path(settings.BASE_DIR) / "examples"


def load(*arguments: str) -> str:
    said = io.StringIO()
    call_command("load_example", *arguments, stdout=said)
    return said.getvalue()


def test_without_a_name_the_examples_are_listed() -> None:
    said = load()
    assert "questions" in said
    assert "database-mutations" in said
    assert "cannot be read" not in said


@pytest.mark.django_db
def test_an_example_is_loaded_once_and_its_run_is_queued(people: People) -> None:
    for _ in range(2):
        said = load("questions")
        project = Project.objects.get(name="Examples")
        assert f"/p/{project.pk}/environments/questions/" in said
        assert EnvironmentVersion.objects.count() == 1
    ModelEndpoint.objects.create(
        project=project, name="mine", kind=EndpointKind.OPENAI, base_url="http://x", model="m"
    )
    said = load("questions", "--run", "--model", "mine", "--tasks", "4")
    run = Run.objects.get()
    assert f"/p/{project.pk}/runs/{run.pk}/" in said
    assert (run.purpose, run.model.name, run.state) == ("baseline", "mine", "queued")
    assert {rollout.task.split for rollout in run.rollouts.all()} == {"select"}
    assert run.rollouts.count() == 4
    assert Job.objects.filter(kind="runs.execute").count() == 1


@pytest.mark.django_db
def test_a_folder_of_ones_own_goes_into_the_project_that_is_named(
    people: People, tmp_path: Path
) -> None:
    (tmp_path / "environment.yaml").write_text("name: Mine\nkind: qa\n")
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "?", "answers": ["x"], "split": "test"}\n')
    said = load(str(tmp_path), "--project", str(people.project.pk))
    assert f"/p/{people.project.pk}/environments/mine/" in said
    with pytest.raises(CommandError, match=r"needs rubric\.json and harness/"):
        load(str(tmp_path), "--project", str(people.project.pk), "--run", "--model", model(people))
    for arguments, reason in (
        (["nowhere"], "neither an example"),
        ([str(tmp_path), "--project", "999999"], "no project 999999"),
        ([str(tmp_path), "--run", "--model", "x"], "has no model 'x'"),
    ):
        with pytest.raises(CommandError, match=reason):
            load(*arguments)
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "?"}\n')
    with pytest.raises(CommandError, match=r"tasks.jsonl, line 1: answers"):
        load(str(tmp_path))


def model(people: People) -> str:
    endpoint = ModelEndpoint.objects.create(
        project=people.project, name="m", kind=EndpointKind.OPENAI, base_url="http://x", model="m"
    )
    return endpoint.name


# --- the examples --------------------------------------------------------------------------------


def example(name: str) -> FolderEnvironment:
    found = read_folder(EXAMPLES / name)
    assert found.rubric is not None
    assert found.harness is not None
    assert len(found.tasks) >= 60
    by_split = {split: [t for t in found.tasks if t.split == split] for split in
                ("train", "select", "test")}  # fmt: skip
    families = [{task.family for task in tasks} for tasks in by_split.values()]
    assert families[0] == families[1] == families[2]
    assert len(families[0]) >= 6
    # No task of a sealed split is one that an agent may learn from.
    learnt = {(t.prompt, json.dumps(t.spec)) for t in by_split["train"]}
    assert not learnt & {(t.prompt, json.dumps(t.spec)) for t in by_split["test"]}
    assert all(task.reference for task in by_split["train"])
    return found


def made(name: str) -> list[dict[str, Any]]:
    tasks = runpy.run_path(str(EXAMPLES / name / "make_tasks.py"))["tasks"]()
    assert isinstance(tasks, list)
    return tasks


def stored(name: str) -> list[dict[str, Any]]:
    lines = (EXAMPLES / name / "tasks.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_questions_are_what_their_script_makes_and_their_references_are_right() -> None:
    assert made("questions") == stored("questions")
    for task in example("questions").tasks:
        served = QaTask.from_json({**(task.spec or {}), "key": task.key, "prompt": task.prompt})
        assert grade(served, "I do not know") == 0.0
        if task.reference:
            action = KINDS["qa"].action_of(task.reference[0]["content"])
            assert isinstance(action, dict)
            assert grade(served, action["answer"]) == 1.0


@pytest.mark.slow
def test_the_mutations_are_what_their_script_makes_and_verifies() -> None:
    assert made("database-mutations") == stored("database-mutations")


def test_the_transcripts_of_the_mutations_are_what_the_environment_says() -> None:
    found = example("database-mutations")
    engine = SqliteEngine()
    try:
        for task in [t for t in found.tasks if t.split == "train"][:10]:
            spec = {"schema": found.source["schema"], **(task.spec or {})}
            prepared = engine.prepare(
                SqlTask.from_json({**spec, "key": task.key, "prompt": task.prompt})
            )
            assert task.reference is not None
            act, observed, end = (message["content"] for message in task.reference)
            action = KINDS["sql"].action_of(act)
            assert isinstance(action, dict)
            assert KINDS["sql"].action_of(end) == {"done": True}
            database = engine.open(prepared)
            reply = database.run(action["sql"])
            segments = segments_of(reply.results, in_transaction=reply.in_transaction)
            assert "".join(segment["text"] for segment in segments) == observed
            database.leave()
            assert database.state(None) == prepared.expected != prepared.initial
            database.close()
    finally:
        engine.close()
