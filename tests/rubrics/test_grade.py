from __future__ import annotations

import asyncio

import pytest

from rubrics.errors import RubricInvalid
from rubrics.grade import grade, grade_async, score
from rubrics.judge.ask import Answer
from rubrics.judge.question import Question, Sampling, make_question
from rubrics.judge.scale import Reading, Scale
from rubrics.kinds import KINDS
from rubrics.kinds.base import Kind
from rubrics.types import (
    Applicability,
    CodeRequest,
    CodeResult,
    Criterion,
    Services,
    State,
    Transcript,
    Verdict,
)
from tests.rubrics.build import criterion, rubric, transcript


class NoServices:
    frame_secret = b""

    async def judge(self, question: Question) -> Answer:
        return Answer(Reading(State.SCORED, 1.0), "the judge says so")

    async def run_code(self, request: CodeRequest) -> CodeResult:
        raise ConnectionError("the sandbox is gone")


def breaks(criterion: Criterion, transcript: Transcript) -> Verdict:
    raise KeyError("oops")


def lies(criterion: Criterion, transcript: Transcript) -> Verdict:
    return Verdict.scored(criterion, float("nan"), "trust me")


async def asks(criterion: Criterion, transcript: Transcript, services: Services) -> Verdict:
    question = make_question(
        criterion=criterion.id, ask="?", scale=Scale(), data={}, sampling=Sampling(), secret=b""
    )
    answer = await services.judge(question)
    return Verdict.scored(criterion, answer.reading.value or 0.0, answer.reason)


async def runs(criterion: Criterion, transcript: Transcript, services: Services) -> Verdict:
    result = await services.run_code(CodeRequest("", "f", {}))
    return Verdict.scored(criterion, result.value, "")


async def sleeps(criterion: Criterion, transcript: Transcript, services: Services) -> Verdict:
    await asyncio.sleep(60)
    raise AssertionError


@pytest.fixture(autouse=True)
def more_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry with kinds that later issues might add."""
    extra = {
        "breaks": Kind("breaks", "", decide=breaks),
        "lies": Kind("lies", "", decide=lies),
        "asks": Kind("asks", "", decide_async=asks),
        "runs": Kind("runs", "", decide_async=runs),
        "sleeps": Kind("sleeps", "", decide_async=sleeps),
    }
    monkeypatch.setattr("rubrics.grade.KINDS", {**KINDS, **extra})


def test_a_criterion_that_raises_is_errored_and_its_siblings_go_on() -> None:
    spec = rubric(criterion("breaks", "a"), criterion("lies", "b"), criterion(id="c"))
    a, b, c = grade(spec, transcript())
    assert (a.state, a.reason) == (State.ERRORED, "KeyError: 'oops'")
    assert (b.state, b.value) == (State.ERRORED, None)
    assert c.value == 1.0


def test_criteria_that_do_not_concern_the_rollout_say_why() -> None:
    applies = Applicability(labels={"family": ("sums",)})
    (found,) = grade(rubric(criterion(applies=applies)), transcript(labels={"family": "lines"}))
    assert (found.state, found.reason) == (State.NOT_APPLICABLE, "family is 'lines', not sums")
    for applies in (Applicability(answered=False), Applicability(min_steps=3)):
        (found,) = grade(rubric(criterion(applies=applies)), transcript())
        assert found.state is State.NOT_APPLICABLE


def test_nothing_is_graded_behind_a_gate_that_is_not_passed() -> None:
    spec = rubric(
        criterion("exact", "gate", params={"expected": "other"}, gate=True),
        criterion("breaks", "later", required=True),
    )
    result, (gate, later) = score(spec, transcript())
    assert (gate.value, later.state) == (0.0, State.NOT_APPLICABLE)
    assert "gate" in later.reason
    assert result.value == 0.0


def test_an_open_gate_lets_the_rest_through() -> None:
    spec = rubric(criterion("exact", "gate", gate=True), criterion(id="later"))
    assert [v.value for v in grade(spec, transcript())] == [1.0, 1.0]


def test_the_plain_door_refuses_kinds_that_need_services() -> None:
    with pytest.raises(RubricInvalid, match="need services"):
        grade(rubric(criterion("asks")), transcript())


async def test_kinds_that_wait_are_graded_beside_the_others() -> None:
    spec = rubric(criterion("asks", "a"), criterion("runs", "b"), criterion("exact", "c"))
    a, b, c = await grade_async(spec, transcript(), services=NoServices())
    assert (a.value, c.value) == (1.0, 1.0)
    assert (b.state, b.reason) == (State.ERRORED, "ConnectionError: the sandbox is gone")


async def test_a_wait_has_a_deadline() -> None:
    spec = rubric(criterion("sleeps", "a"), criterion("exact", "b"))
    a, b = await grade_async(spec, transcript(), services=NoServices(), timeout_s=0.01)
    assert (a.state, a.reason) == (State.ERRORED, "no verdict within 0.01 s")
    assert b.value == 1.0
