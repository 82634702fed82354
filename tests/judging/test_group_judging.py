"""Groups over real HTTP: one call for several rollouts, kept, and read again from what is kept."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from orchestrator.judging.models import JudgeCall
from orchestrator.judging.services import grading_services
from orchestrator.projects.models import Project
from rubrics.codec import from_json
from rubrics.grade_group import grade_group
from rubrics.types import State, Verdict
from tests.doubles.model_server import Asked, ScriptedModel
from tests.judging.test_judges import endpoint, project
from tests.rubrics.build import transcript

__all__ = ["project"]
pytestmark = pytest.mark.django_db(transaction=True)

SPEC = {
    "criteria": [
        {
            "id": "g",
            "kind": "judge_group",
            "params": {"question": "Is it right?", "sees": ["answer"], "min": 0, "max": 9},
        }
    ]
}


def marks(asked: Asked) -> str:
    """The last digit of each answer."""
    key = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
    data = re.search(r"<data-\w+>\n(.*)\n</data-", asked.last, re.DOTALL)
    assert key is not None and data is not None
    given = [
        {"id": shown["id"], "reason": "seen", "score": int(shown["final_answer"][-1])}
        for shown in json.loads(data.group(1))["rollouts"]
    ]
    return json.dumps({"key": key.group(1), "marks": given})


def graded(project: Project, answers: list[str]) -> list[Verdict]:
    async def go() -> dict[int, list[Verdict]]:
        async with grading_services(project.pk) as services:
            group = {i: transcript(answer=answer) for i, answer in enumerate(answers)}
            return await grade_group(from_json(SPEC), group, services=services)

    return [verdicts[0] for verdicts in asyncio.run(go()).values()]


def test_a_group_is_asked_once_and_read_from_what_is_kept(project: Project) -> None:
    with ScriptedModel(marks) as model:
        endpoint(project, model)
        first = graded(project, ["a9", "b3", "c0"])
        again = graded(project, ["c0", "a9", "b3"])
        assert len(model.asked) == 1
    assert [v.value for v in first] == pytest.approx([1, 1 / 3, 0])
    assert [v.value for v in again] == pytest.approx([0, 1, 1 / 3])
    call = JudgeCall.objects.get()
    assert call.value == pytest.approx(4 / 9) and len(json.loads(call.replies[0]["text"])) == 2
    sent: Any = call.request["schema"]["properties"]["marks"]
    assert (sent["minItems"], sent["maxItems"]) == (3, 3)


def test_a_judge_that_marks_too_few_is_asked_once_more_and_then_scores_none(
    project: Project,
) -> None:
    def too_few(asked: Asked) -> str:
        said = json.loads(marks(asked))
        return json.dumps({**said, "marks": said["marks"][:-1]})

    with ScriptedModel(too_few) as model:
        endpoint(project, model)
        found = graded(project, ["a9", "b3", "c0"])
        assert len(model.asked) == 2
    assert {(v.state, v.value) for v in found} == {(State.ERRORED, None)}
    call = JudgeCall.objects.get()
    assert (call.state, call.reason_kind, len(call.replies)) == ("errored", "wrong_count", 2)
