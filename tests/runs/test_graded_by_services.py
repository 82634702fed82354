"""Runs whose rubric asks a judge, runs code and looks at the final state."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from orchestrator.agents.models import EndpointKind
from orchestrator.judging.models import JudgeCall
from orchestrator.judging.services import grading_services
from orchestrator.runs import engine
from orchestrator.runs.models import Rollout, RolloutState, Run, RunState
from orchestrator.runs.transcripts import transcript_of
from rubrics.codec import from_json
from rubrics.grade import grade_async
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.climbs.small import make_environment
from tests.doubles.model_server import Asked, Raw, Script, refusal
from tests.environments.conftest import needs_bubblewrap
from tests.runs.conftest import MakeModel
from tests.runs.drive import events, execute, make_endpoint, make_run, rollouts
from tests.runs.solver import solve

pytestmark = [pytest.mark.django_db(transaction=True), needs_bubblewrap]

RUBRIC: dict[str, Any] = {
    "criteria": [
        {"id": "solved", "kind": "environment_reward", "weight": 6},
        {
            "id": "short",
            "kind": "python",
            "scope": "trajectory",
            "params": {
                "source": "def short(trace):\n"
                "    print(len(trace['steps']))\n"
                "    return {'value': len(trace['steps']) <= 4, 'reason': 'counted'}\n"
            },
        },
        {
            "id": "polite",
            "kind": "judge",
            "scope": "trajectory",
            "params": {"question": "Is the agent polite?"},
        },
        {
            "id": "untouched",
            "kind": "state_file",
            "scope": "environment_state",
            "params": {"path": "*.txt"},
        },
    ]
}


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def verdict(asked: Asked) -> str:
    found = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
    assert found is not None
    return json.dumps({"key": found.group(1), "reason": "As [E3] shows.", "score": 1})


def run_with(people: People, make_model: MakeModel, judge: Script) -> Run:
    version = make_environment(people.project, test=3)
    version.tasks.exclude(split="test").delete()
    make_endpoint(
        people.project,
        make_model(judge).url,
        name="j1",
        kind=EndpointKind.OPENAI,
        is_judge=True,
    )
    rubric = Rubric.objects.create(project=people.project, name="all sorts")
    return execute(
        make_run(
            people.project,
            version=version,
            model_url=make_model(solve).url,
            rubric_version=create_rubric_version(rubric=rubric, spec=RUBRIC),
        )
    )


def verdicts_of(rollout: Rollout) -> dict[str, tuple[str, float | None]]:
    return {v.criterion: (v.state, v.value) for v in rollout.verdicts.all()}


def test_every_sort_of_criterion_decides_and_leaves_its_reasons(
    people: People, make_model: MakeModel
) -> None:
    run = run_with(people, make_model, verdict)
    assert (run.state, run.error) == (RunState.COMPLETED, "")
    for rollout in rollouts(run):
        assert rollout.score == 1.0
        assert verdicts_of(rollout) == dict.fromkeys(
            ("solved", "short", "polite", "untouched"), ("scored", 1.0)
        )
        details = {v.criterion: v.detail for v in rollout.verdicts.all()}
        assert details["short"]["printed"].strip().isdecimal()
        call = JudgeCall.objects.get(pk=details["polite"]["calls"][0]["call"])
        assert json.loads(call.replies[0]["text"])["reason"] == "As [E3] shows."
        (final,) = events(rollout.stream_id, "final_state")
        assert final.payload["state"]["files"]


def test_the_same_transcript_is_graded_alike_afterwards(
    people: People, make_model: MakeModel
) -> None:
    run = run_with(people, make_model, verdict)
    rollout = rollouts(run)[0]

    async def again() -> list[Any]:
        async with grading_services(people.project.pk) as services:
            return await grade_async(from_json(RUBRIC), transcript, services=services)

    transcript = transcript_of(rollout)
    n_calls = JudgeCall.objects.count()
    found = {v.criterion: (v.state.value, v.value) for v in asyncio.run(again())}
    assert found == verdicts_of(rollout)
    assert JudgeCall.objects.count() == n_calls, "nothing was asked twice"


@pytest.mark.parametrize(
    "reply",
    [Raw(200, "<html>"), refusal(400, "no such model"), "I would rather not say.", '{"score": 7}'],
)
def test_a_broken_judge_sinks_no_run_and_writes_no_zero(
    people: People, make_model: MakeModel, reply: str | Raw
) -> None:
    run = run_with(people, make_model, lambda asked: reply)
    assert run.state == RunState.COMPLETED
    for rollout in rollouts(run):
        # Its weight is a ninth: the others decide, and the error is counted beside them.
        assert (rollout.state, rollout.score) == (RolloutState.SCORED, 1.0)
        broken = rollout.verdicts.get(criterion="polite")
        assert (broken.state, broken.value) == ("errored", None)
        assert broken.reason


def test_the_page_tells_why(people: People, make_model: MakeModel, client: Client) -> None:
    run = run_with(people, make_model, verdict)
    client.force_login(people.member)
    url = f"/p/{people.project.pk}/rollouts/{rollouts(run)[0].pk}/"
    html = client.get(url).content.decode()
    assert "Is the agent polite?" in html
    assert "1 judge call" in html
    assert "Final state" in html
    assert "cannot draw" not in html
    assert "&quot;reason&quot;: &quot;As [E3] shows.&quot;" in html
