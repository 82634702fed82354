"""A past rollout is graded on exactly what its run has graded it on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.events.services import NewEvent, append
from orchestrator.runs import engine
from orchestrator.runs.models import Rollout, Run
from orchestrator.runs.payloads import KEPT_CHARS
from orchestrator.runs.transcripts import transcript_of, transcripts_of
from rubrics.codec import from_json
from rubrics.grade import score
from rubrics.models import Rubric, RubricVersion
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.doubles.model_server import Asked, Reply
from tests.environments.conftest import needs_bubblewrap
from tests.runs.conftest import MakeModel
from tests.runs.drive import act, execute, make_endpoint, make_run, make_version, number_of
from tests.runs.test_function_calls import calls_then, chat, make_tools

pytestmark = pytest.mark.django_db(transaction=True)

RUBRIC = {
    "criteria": [
        {"id": "reward", "kind": "environment_reward"},
        {"id": "said", "kind": "contains", "scope": "step", "params": {"texts": ["look"]}},
        {"id": "marks", "kind": "regex", "scope": "trajectory", "params": {"pattern": "�"}},
        {"id": "few", "kind": "steps", "scope": "trajectory", "params": {"max": 4, "within": 1}},
        {"id": "fast", "kind": "latency", "scope": "trajectory", "params": {"max": 9, "within": 0}},
        {"id": "cheap", "kind": "cost", "scope": "trajectory", "params": {"max": 1, "within": 0}},
        {
            "id": "terse",
            "kind": "tokens",
            "scope": "trajectory",
            "params": {"max": 9999, "within": 0},
        },
        {
            "id": "asked",
            "kind": "tool_called",
            "scope": "trajectory",
            "params": {"tool": "price", "arguments": {"item": "pen"}, "succeeded": True},
        },
        {"id": "right", "kind": "exact", "params": {}},
    ]
}


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def make_rubric(people: People) -> RubricVersion:
    rubric = Rubric.objects.create(project=people.project, name="everything")
    return create_rubric_version(rubric=rubric, spec=RUBRIC)


def all_rollouts(run: Run) -> list[Rollout]:
    query = Rollout.everything.filter(run=run).select_related("task").order_by("id")
    return list(query.prefetch_related("verdicts"))


def assert_grades_alike(run: Run) -> list[Rollout]:
    """Every rollout that was graded; returns all."""
    spec = from_json(run.rubric_version.spec)
    listed = all_rollouts(run)
    transcripts = transcripts_of(listed)
    for rollout in listed:
        stored = {v.criterion: v for v in rollout.verdicts.all()}
        if not stored:
            continue
        again, verdicts = score(spec, transcripts[rollout.pk])
        assert [
            (v.criterion, v.state.value, v.value, v.reason, list(v.cites)) for v in verdicts
        ] == [
            (v.criterion, v.state, v.value, v.reason, v.cites)
            for v in (stored[c.id] for c in spec.criteria)
        ]
        assert (again.state.value, again.value) == (rollout.state, rollout.score)
    return listed


def test_a_past_rollout_gets_the_verdicts_of_its_run(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    def script(asked: Asked) -> str:
        number = number_of(asked)
        turn = sum(role == "assistant" for role, _ in asked.messages)
        if number == 0 and turn == 0:
            return act(text="look \x00 around", size=3)
        if number == 1 and turn < 2:
            # What does not fit the schema is refused and costs no step.
            return [act(nonsense=1), act(size=KEPT_CHARS + 5)][turn]
        if number == 2 and turn == 0:
            return act(op="raise")
        return act(text=f"look {number}", reward=[1, 0.5, 1, None][number], done=True)

    version = make_version(people.project, fault_url, tasks=4)
    model = make_endpoint(
        people.project,
        make_model(script).url,
        price_in_usd_per_mtok=3.0,
        price_out_usd_per_mtok=15.0,
    )
    run = execute(
        make_run(people.project, version=version, model=model, rubric_version=make_rubric(people))
    )
    clean, refused, errored, _ = assert_grades_alike(run)
    assert (clean.state, refused.state, errored.state) == ("scored", "scored", "errored")
    assert clean.verdicts.get(criterion="cheap").value is not None
    assert clean.verdicts.get(criterion="fast").value is not None
    seen = transcripts_of([clean, refused, errored])
    assert [s.index for s in seen[refused.pk].steps] == [1, 2]
    assert "[shortened: " in seen[refused.pk].steps[0].output
    assert (seen[errored.pk].steps, seen[errored.pk].reward) == ((), None)
    assert seen[clean.pk].cost_usd == clean.cost_usd > 0
    with CaptureQueriesContext(
        connection,
    ) as asked:
        transcripts_of(all_rollouts(run))
    assert len(asked) == 3  # rollouts, verdicts, events


@needs_bubblewrap
def test_calls_of_tools_are_kept_with_their_arguments(
    people: People, make_model: MakeModel
) -> None:
    model = make_model(
        calls_then(
            Reply("", calls=[("price", '{"item": "pen"}'), ("price", '{"item": "cup"}')]),
            Reply("", calls=[("price", '{"item": ')]),
            Reply("", calls=[("submit", '{"answer": "2.5"}')]),
        )
    )
    run = execute(
        make_run(
            people.project,
            version=make_tools(people),
            model=chat(people, model, supports_tools=True),
            rubric_version=make_rubric(people),
        )
    )
    (rollout,) = assert_grades_alike(run)
    steps = transcript_of(rollout).steps
    assert [(s.tool, s.arguments) for s in steps] == [
        ("price", {"item": "pen"}),
        ("price", {"item": "cup"}),
        ("submit", {"answer": "2.5"}),
    ]
    assert "cup" in steps[1].tool_error
    asked = rollout.verdicts.get(criterion="asked")
    assert (asked.value, asked.cites) == (1.0, [steps[0].seq])
    assert json.dumps(steps[0].arguments)


@needs_bubblewrap
def test_odd_characters_are_graded_as_they_are_kept(people: People, make_model: MakeModel) -> None:
    """The log replaces what a database refuses; grading never sees anything else."""
    model = make_model(
        calls_then(
            Reply("Nothing \x00 here", calls=[("price", '{"item": "\\u0000pen"}')]),
            Reply("", calls=[("submit", '{"answer": "\\u0000"}')]),
        )
    )
    run = execute(
        make_run(
            people.project,
            version=make_tools(people),
            model=chat(people, model, supports_tools=True),
            rubric_version=make_rubric(people),
        )
    )
    (rollout,) = assert_grades_alike(run)
    assert rollout.verdicts.get(criterion="marks").value == 1.0
    first, last = transcript_of(rollout).steps
    assert (first.arguments, last.answer) == ({"item": "\ufffdpen"}, "\ufffd")


def test_the_final_state_is_read_from_the_log(people: People, fault_url: str) -> None:
    """And steps of an attempt that was cut off belong to no transcript."""
    version = make_version(people.project, fault_url, tasks=1)
    run = make_run(people.project, version=version)
    (rollout,) = all_rollouts(run)
    action = {"step": 1, "text": "a", "command": None, "answer": None}
    seen = {"step": 1, "segments": [], "done": True, "reward": 1.0}
    final = {"components": {"style": 0.5}, "state": {"files": {"a": {"size": 1}}}}
    append(
        stream_id=rollout.stream_id,
        items=[
            NewEvent("action", action),
            NewEvent("observation", seen),
            NewEvent("rollout.restarted", {"attempt": 2, "reason": "lost"}),
            NewEvent("action", {**action, "text": "b"}),
            NewEvent("observation", seen),
            NewEvent("final_state", final),
        ],
    )
    transcript = transcript_of(rollout)
    assert [step.action for step in transcript.steps] == ["b"]
    assert transcript.components == {"style": 0.5}
    assert transcript.state == {"files": {"a": {"size": 1}}}
