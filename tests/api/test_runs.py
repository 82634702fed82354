"""Runs and rollouts through the API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orchestrator.projects.models import AuditEntry, Role
from orchestrator.runs.models import Rollout, Run
from tests.api.client import Program, fields_of, problem_in, program_of
from tests.base import People
from tests.web.build import make_harness, make_rollout, make_run, make_trace, tasks_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor(people: People) -> Program:
    return program_of(people.editor, people.project)


@pytest.mark.parametrize("headers", [{}, {"Idempotency_Key": "once"}])
def test_what_was_started_is_in_the_audit_log_once(
    people: People, editor: Program, headers: dict[str, str]
) -> None:
    like = make_run(people.project)
    with CaptureQueriesContext(connection) as queries:
        editor.post("runs", people.project.pk, body=asked_like(like), **headers)
    (entry,) = AuditEntry.objects.filter(action="api:runs")
    assert (entry.status, entry.user) == (202, people.editor)
    # In the transaction that starts it: nothing is begun after it.
    told = [query["sql"] for query in queries.captured_queries]
    at = next(n for n, sql in enumerate(told) if sql.startswith('INSERT INTO "projects_auditentry'))
    assert told[at + 1].startswith("RELEASE SAVEPOINT"), told[at:]


def asked_like(run: Run, **changes: Any) -> dict[str, Any]:
    return {
        "environment": run.environment_version.environment.slug,
        "rubric": run.rubric_version.rubric_id,
        "model": run.model_id,
        "n_tasks": 2,
        **changes,
    }


def test_a_run_is_started_and_followed(people: People, editor: Program) -> None:
    like = make_run(people.project)
    harness = make_harness(people.project)
    body = asked_like(like, harness=harness.pk, replicates=2, label="from a program")
    response = editor.post("runs", people.project.pk, body=body)
    assert response.status_code == 202, response.content
    answer = response.json()
    run = Run.objects.get(pk=answer["id"])
    assert (run.label, run.purpose, run.state) == ("from a program", "evaluate", "queued")
    assert run.rollouts.filter(harness=harness, task__split="select").count() == 4
    assert run.job is not None and run.job.kind == "runs.execute"
    assert answer["rollouts"]["planned"] == 4 and answer["rollouts"]["mean"] is None
    assert answer["html_url"] == f"http://testserver/p/{people.project.pk}/runs/{run.pk}/"
    assert response["Location"] == answer["url"]
    assert editor.fetch(answer["url"]).json() == answer
    assert editor.fetch(answer["events_url"]).json()["has_ended"] is False


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"environment": "none"}, "environment"),
        ({"version": 7}, "version"),
        ({"rubric": 10**14}, "rubric"),
        ({"model": "x"}, "model"),
        ({"harness": 10**14}, "harness"),
        ({"split": "test"}, "split"),
        ({"replicates": 0}, "replicates"),
    ],
)
def test_what_cannot_be_names_its_field(
    people: People, editor: Program, changes: dict[str, Any], field: str
) -> None:
    like = make_run(people.project)
    response = editor.post("runs", people.project.pk, body=asked_like(like, **changes))
    problem = problem_in(response, 400)
    assert fields_of(problem) == [field]
    assert Run.objects.count() == 1


def test_what_the_product_refuses_is_unprocessable(people: People, editor: Program) -> None:
    like = make_run(people.project)
    like.environment_version.tasks.filter(split="select").delete()
    problem = problem_in(editor.post("runs", people.project.pk, body=asked_like(like)), 422)
    assert fields_of(problem) == ["split"] and "no tasks" in problem["detail"]


def test_things_of_another_project_are_not_there(people: People, editor: Program) -> None:
    elsewhere = make_run(people.stranger.projects.get())
    for name in ("run", "run_events", "run_rollouts", "run_rollouts_jsonl"):
        problem_in(editor.get(name, people.project.pk, elsewhere.pk), 404)
        problem_in(editor.get(name, elsewhere.project_id, elsewhere.pk), 404)
    here = make_run(people.project)
    body = asked_like(here, model=elsewhere.model_id)
    assert fields_of(problem_in(editor.post("runs", people.project.pk, body=body), 400)) == [
        "model"
    ]


def test_a_list_is_read_page_by_page_and_shows_nothing_twice(
    people: People, editor: Program
) -> None:
    version = make_run(people.project)
    common = {"environment_version": version.environment_version, "model": version.model}
    for _ in range(6):
        make_run(people.project, rubric_version=version.rubric_version, **common)
    seen: list[int] = []
    response = editor.get("runs", people.project.pk, limit=3)
    while True:
        page = response.json()
        seen += [item["id"] for item in page["items"]]
        if len(seen) == 3:
            make_run(people.project, rubric_version=version.rubric_version, **common)
        if page["next"] is None:
            break
        response = editor.fetch(page["next"])
    first = Run.objects.order_by("pk").values_list("pk", flat=True)[:7]
    assert seen == sorted(first, reverse=True)


def test_a_list_takes_few_queries(
    people: People, editor: Program, django_assert_max_num_queries: Any
) -> None:
    like = make_run(people.project)
    for _ in range(20):
        make_run(
            people.project,
            environment_version=like.environment_version,
            rubric_version=like.rubric_version,
            model=like.model,
        )
    editor.get("runs", people.project.pk)
    with django_assert_max_num_queries(10):
        assert len(editor.get("runs", people.project.pk).json()["items"]) == 21


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 201}, {"limit": "x"}, {"cursor": "!"}, {"state": "odd"}]
)
def test_a_parameter_that_is_not_understood_is_named(
    people: People, editor: Program, query: dict[str, Any]
) -> None:
    problem = problem_in(editor.get("runs", people.project.pk, **query), 400)
    assert fields_of(problem) == list(query)


def test_runs_are_filtered(people: People, editor: Program) -> None:
    running = make_run(people.project, state="running", ended_at=None)
    make_run(people.project)
    found = editor.get("runs", people.project.pk, state="running").json()["items"]
    assert [item["id"] for item in found] == [running.pk]


def test_rollouts_come_with_their_verdicts(people: People, editor: Program) -> None:
    run = make_run(people.project)
    one, two = tasks_of(run)[:2]
    scored = make_rollout(run, one)
    make_trace(scored)
    make_rollout(run, two, state="errored", message="The server is gone.", cause="server_lost")
    page = editor.get("run_rollouts", people.project.pk, run.pk).json()
    first, second = page["items"]
    assert (first["score"], first["verdicts"][0]["criterion"]) == (1.0, "correct")
    assert (second["state"], second["score"], second["cause"]) == ("errored", None, "server_lost")
    only = editor.get("run_rollouts", people.project.pk, run.pk, state="errored").json()
    assert [item["id"] for item in only["items"]] == [second["id"]]
    assert editor.get("rollout", people.project.pk, scored.pk).json() == first
    lines = editor.get("run_rollouts_jsonl", people.project.pk, run.pk)
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert told == [first, second]


def test_a_trace_is_read_in_pages_and_as_lines(people: People, editor: Program) -> None:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    make_trace(rollout)
    told = editor.get("rollout_events", people.project.pk, rollout.pk).json()
    assert [event["seq"] for event in told["events"]] == [1, 2, 3, 4, 5]
    assert told["head"] == 5 and told["has_ended"] is True
    rest = editor.get("rollout_events", people.project.pk, rollout.pk, after=4).json()
    assert rest["events"] == told["events"][4:]
    lines = editor.get("rollout_trace", people.project.pk, rollout.pk).getvalue().splitlines()
    assert [json.loads(line) for line in lines] == told["events"]
    problem_in(editor.get("rollout_events", people.project.pk, rollout.pk, after="x"), 400)


def test_a_run_is_cancelled_by_editors_alone(people: People, editor: Program) -> None:
    run = make_run(people.project, state="queued", started_at=None, ended_at=None)
    make_rollout(run, tasks_of(run)[0], state="pending")
    viewer = program_of(people.member, people.project, Role.VIEWER)
    problem_in(viewer.post("run_cancel", people.project.pk, run.pk), 403)
    answer = editor.post("run_cancel", people.project.pk, run.pk)
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert Rollout.objects.get(run=run).state == "cancelled"
    run.refresh_from_db()
    assert run.ended_at is not None and run.ended_at <= timezone.now()
