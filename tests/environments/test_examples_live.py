"""The examples of the kinds qa and sql at work: whole runs, and what a check says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from orchestrator.environments import folders
from orchestrator.environments.conformance.services import check_environment
from orchestrator.environments.folders import Stored
from orchestrator.jobs.execution import run_attempt
from orchestrator.runs import engine, queries
from orchestrator.runs.models import RunState
from tests.base import People
from tests.doubles.model_server import Asked, decode
from tests.runs.conftest import MakeModel, make_model
from tests.runs.drive import assert_gapless, events, execute, make_run, rollouts

__all__ = ["make_model"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def load(people: People, name: str) -> Stored:
    found = folders.read_folder(Path(settings.BASE_DIR) / "examples" / name)
    return folders.store(actor=people.owner, project=people.project, environment=found)


def test_a_model_that_writes_the_right_sql_solves_every_family(
    people: People, make_model: MakeModel
) -> None:
    """And each kind of text in its stored tokens is what it says it is."""
    stored = load(people, "database-mutations")
    tasks = list(stored.version.tasks.filter(split="select").order_by("key")[:10])
    stored.version.tasks.exclude(pk__in=[task.pk for task in tasks]).delete()

    def script(asked: Asked) -> str:
        """The solution, then `done`; on the last task a wrong column first."""
        said = [content for role, content in asked.messages if role == "assistant"]
        task = next(t for t in tasks if any(t.prompt in content for _, content in asked.messages))
        replies = [f"SQL: {task.spec['solution']}", "done"]
        if task == tasks[-1]:
            replies.insert(0, "SELECT nowhere FROM people")
        if task == tasks[0]:
            replies.insert(0, "CREATE TABLE x (a); DROP TABLE x")
        return replies[len(said)]

    run = execute(
        make_run(
            people.project,
            version=stored.version,
            model_url=make_model(script).url,
            rubric_version=stored.rubric,
        )
    )
    assert (run.state, run.error) == (RunState.COMPLETED, "")
    assert [r.reward for r in rollouts(run)] == [1.0] * 10
    vandal = rollouts(run)[0]
    assert {v.criterion: v.value for v in vandal.verdicts.all()}["no-drop"] == 1.0
    assert vandal.score is not None
    assert vandal.score < 1.0
    assert [r.score for r in rollouts(run)[1:]] == [1.0] * 9
    assert run.isolation["is_weak"] is False
    last = rollouts(run)[-1]
    (row,) = last.token_rows.all()
    kinds = [kind for kind, count in row.kinds for _ in range(count)]

    def told(kind: str) -> str:
        return decode([i for i, k in zip(row.ids, kinds, strict=True) if k == kind])

    assert told("env_output") == "Error: no such column: nowhere"
    assert "row" in told("scaffold")
    assert tasks[-1].prompt in told("context")
    assert "CREATE TABLE people" in told("context")
    assert_gapless()


def test_questions_are_answered_in_one_step(people: People, make_model: MakeModel) -> None:
    stored = load(people, "questions")
    stored.version.tasks.exclude(split="select").delete()
    right = {task.prompt: task.spec["answers"][0] for task in stored.version.tasks.all()}

    def script(asked: Asked) -> str:
        return f"Answer: {right[asked.messages[-1][1]]}"

    run = execute(
        make_run(
            people.project,
            version=stored.version,
            model_url=make_model(script).url,
            rubric_version=stored.rubric,
        )
    )
    assert (run.state, run.error) == (RunState.COMPLETED, "")
    assert queries.tally(run.pk).mean == 1.0
    assert all(r.n_steps == 1 for r in rollouts(run))
    assert len(events(rollouts(run)[0].stream_id, "action")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["questions", "database-mutations"])
def test_a_check_of_the_example_finds_no_fault(people: People, name: str) -> None:
    stored = load(people, name)
    check = check_environment(actor=people.editor, version=stored.version)
    assert check.job_id is not None
    run_attempt(check.job_id)
    check.refresh_from_db()
    found = {
        result.check_id: (result.status, result.evidence)
        for result in check.results.all()
        if result.status not in ("pass", "skip")
    }
    assert (check.state, found) == ("completed", {})
