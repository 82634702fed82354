"""Judges over real HTTP: asked once, held to a schema, waited for, and never a zero."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.agents.models import ModelEndpoint
from orchestrator.judging.judges import Judges
from orchestrator.judging.models import JudgeCall
from orchestrator.judging.services import grading_services
from orchestrator.projects.models import Project
from orchestrator.projects.secrets import decrypt, encrypt
from rubrics.codec import from_json
from rubrics.errors import CriterionFailed
from rubrics.grade import grade_async
from rubrics.judge.question import Question, Sampling, make_question
from rubrics.judge.scale import Scale
from rubrics.types import State, Verdict
from tests.base import make_project
from tests.doubles.model_server import Asked, Raw, ScriptedModel, refusal
from tests.rubrics.build import transcript

pytestmark = pytest.mark.django_db(transaction=True)
OVERLOADED = Raw(429, '{"error": {"message": "slow down"}}')


def says(score: Any = 1) -> Callable[[Asked], str]:
    def reply(asked: Asked) -> str:
        found = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
        assert found is not None
        return json.dumps({"key": found.group(1), "reason": "seen in [E10]", "score": score})

    return reply


@pytest.fixture
def project(db: None) -> Project:
    return make_project()


def endpoint(project: Project, model: ScriptedModel, **changes: Any) -> ModelEndpoint:
    values: dict[str, Any] = {
        "name": "j1",
        "kind": "openai",
        "base_url": model.url,
        "model": model.name,
        "is_judge": True,
        "price_in_usd_per_mtok": 1.0,
        **changes,
    }
    return ModelEndpoint.objects.create(project=project, **values)


def question(**changes: Any) -> Question:
    values: dict[str, Any] = {
        "criterion": "c",
        "ask": "Is it done?",
        "scale": Scale(),
        "data": {"answer": "42"},
        "sampling": Sampling(),
        "secret": b"s",
        **changes,
    }
    return make_question(**values)


def judged(project: Project, *questions: Question, patience_s: float = 5.0) -> list[Any]:
    """The answers, or what was raised in their place."""

    async def all_of_them() -> list[Any]:
        async with Judges(project.pk, patience_s=patience_s) as judges:

            async def one(asked: Question) -> Any:
                try:
                    return await judges.judge(asked)
                except CriterionFailed as failure:
                    return str(failure)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(asked)) for asked in questions]
            return [task.result() for task in tasks]

    return asyncio.run(all_of_them())


def test_equal_questions_are_asked_once_and_the_raw_reply_is_kept(project: Project) -> None:
    with ScriptedModel(says()) as model:
        endpoint(project, model)
        answers = judged(project, question(), question(), question(repeat=1))
        again = judged(project, question())
        assert len(model.asked) == 2
    assert [a.reading.value for a in (*answers, *again)] == [1.0] * 4
    assert answers[0].call == answers[1].call == again[0].call
    call = JudgeCall.objects.get(pk=answers[0].call)
    assert json.loads(call.replies[0]["text"])["score"] == 1
    assert call.cost_usd > 0
    assert call.request["messages"][1]["content"].startswith("Criterion: Is it done?")


def test_another_model_is_asked_again(project: Project) -> None:
    with ScriptedModel(says()) as model:
        row = endpoint(project, model)
        judged(project, question())
        model.adapters["other"] = ""
        row.model = "other"
        row.save()
        judged(project, question())
        assert [asked.model for asked in model.asked] == ["scripted", "other"]


def test_the_reply_is_held_to_a_schema_where_the_endpoint_can(project: Project) -> None:
    with ScriptedModel(says()) as model:
        endpoint(project, model)
        judged(project, question())
        (asked,) = model.asked
    schema = asked.body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["score"]["enum"] == [0, 1]


def test_an_endpoint_without_schemas_is_asked_in_words_and_that_is_remembered(
    project: Project,
) -> None:
    def plain(asked: Asked) -> str | Raw:
        if "response_format" in asked.body:
            return refusal(400, "response_format is not supported")
        return says()(asked)

    with ScriptedModel(plain) as model:
        row = endpoint(project, model)
        assert judged(project, question())[0].reading.value == 1.0
        row.refresh_from_db()
        assert row.supports_schema is False
        judged(project, question(repeat=1))
        assert "response_format" not in model.asked[-1].body


def test_one_that_lies_about_its_schema_is_corrected_and_then_errored(project: Project) -> None:
    with ScriptedModel(lambda asked: "It is fine, I think: 1") as model:
        endpoint(project, model)
        (answer,) = judged(project, question())
        assert len(model.asked) == 3
    assert (answer.reading.state, answer.reading.value) == (State.ERRORED, None)
    call = JudgeCall.objects.get()
    assert (call.state, call.value, call.reason_kind) == ("errored", None, "no_verdict")
    assert [reply["text"] for reply in call.replies] == ["It is fine, I think: 1"] * 3


def test_an_overloaded_endpoint_is_waited_for(project: Project) -> None:
    with ScriptedModel(says(0)) as model:
        endpoint(project, model)
        model.failures = [OVERLOADED] * 3
        (answer,) = judged(project, question())
    assert answer.reading.value == 0.0


def test_one_that_stays_overloaded_is_an_error_and_is_asked_again_later(project: Project) -> None:
    with ScriptedModel(says()) as model:
        endpoint(project, model)
        model.failures = [OVERLOADED] * 50
        (failure,) = judged(project, question(), patience_s=0.3)
        assert "Judge j1" in failure
        assert "429" in failure
        assert JudgeCall.objects.get().state == "errored"
        model.failures = []
        (answer,) = judged(project, question())
    assert answer.reading.value == 1.0
    assert JudgeCall.objects.get().state == "scored"


def test_an_unreachable_judge_says_so(project: Project) -> None:
    with ScriptedModel(says()) as model:
        endpoint(project, model)
    (failure,) = judged(project, question(), patience_s=0.2)
    assert "could not be reached" in failure


def test_who_is_missing_is_named_with_what_to_do(project: Project) -> None:
    (failure,) = judged(project, question())
    assert "has no judge" in failure
    assert "Settings" in failure
    (failure,) = judged(project, question(sampling=Sampling(model="gpt")))
    assert "no model named 'gpt'" in failure


def test_the_key_is_sent_and_never_kept_in_clear(project: Project) -> None:
    with ScriptedModel(says()) as model:
        row = endpoint(project, model, secret=encrypt("sk-123"))
        assert "sk-123" not in row.secret
        assert decrypt(row.secret) == "sk-123"
        judged(project, question())
    assert "sk-123" not in json.dumps(JudgeCall.objects.get().request)
    row.secret = row.secret[:-4] + "AAAA"
    row.save()
    (failure,) = judged(project, question(repeat=3))
    assert "Enter it again" in failure


def graded(project: Project, *criteria: dict[str, Any]) -> list[Verdict]:
    async def run() -> list[Verdict]:
        async with grading_services(project.pk) as services:
            return await grade_async(
                from_json({"criteria": list(criteria)}), transcript(), services=services
            )

    return asyncio.run(run())


def test_a_rubric_of_all_sorts_is_graded_and_a_broken_judge_sinks_nothing(
    project: Project,
) -> None:
    judge = {"kind": "judge", "scope": "trajectory"}
    with ScriptedModel(says()) as model:
        endpoint(project, model)
        verdicts = graded(
            project,
            {"id": "a", "kind": "exact"},
            {"id": "b", "params": {"question": "Is it done?"}, **judge},
            {"id": "c", "params": {"question": "Is it done?", "model": "nobody"}, **judge},
            {
                "id": "d",
                "kind": "python",
                "scope": "trajectory",
                "params": {"source": "def f(trace):\n    return len(trace['steps']) / 2\n"},
            },
        )
    assert [v.value for v in verdicts] == [1.0, 1.0, None, 1.0]
    assert verdicts[1].cites == (10,)
    assert verdicts[2].state is State.ERRORED
