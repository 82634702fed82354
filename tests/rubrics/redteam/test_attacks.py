"""Attacks against rubrics of code: naive ones are caught, sound ones are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.aggregate import aggregate
from rubrics.grade import grade
from rubrics.redteam import wrong
from rubrics.redteam.attacks import ATTACKS, BY_ID, Family, Limit, has_judges, reseeded
from rubrics.redteam.cases import Case, gave_up, with_answer
from rubrics.redteam.outcome import Graded, Outcome, advice, outcome
from rubrics.types import RubricSpec, Scope, Transcript
from tests.rubrics.build import criterion, rubric, step, transcript

FAILED = transcript(
    steps=(
        step(0),
        step(1, command="wc -l a.txt", action="wc -l a.txt", output="17 a.txt"),
        step(2, action="answer: 17", command=None, answer="17", output="", reward=0.0, done=True),
    ),
    answer="17",
    reward=0.0,
    task="How many lines has a.txt?",
)
PASSED = transcript(task="How many lines has a.txt?")
SOUND = rubric(criterion("exact", "right"), criterion("environment_reward", "paid"))


def graded(spec: RubricSpec, of: Transcript) -> Graded:
    verdicts = grade(spec, of)
    return Graded(aggregate(spec, verdicts), verdicts)


def attacked(spec: RubricSpec) -> dict[str, Outcome]:
    """What each attack on the two rollouts got; a finding is kept before none."""
    found: dict[str, Outcome] = {}
    for base, is_success in ((FAILED, False), (PASSED, True)):
        case = Case(base, spec, is_success)
        before = graded(spec, base)
        right = BY_ID["reference"].make(case)
        reference = graded(spec, right) if right is not None and is_success else None
        for attack in ATTACKS:
            if not attack.concerns(is_success=is_success):
                continue
            made = attack.make(case)
            if made is None:
                continue
            got = outcome(attack, spec, graded(spec, made), before, reference)
            if attack.id not in found or got.is_paid:
                found[attack.id] = got
    return found


def paid(spec: RubricSpec) -> set[str]:
    return {id for id, got in attacked(spec).items() if got.is_paid}


def test_a_sound_rubric_pays_no_attack() -> None:
    assert paid(SOUND) == set()


def test_one_number_in_the_answer_is_sound_but_for_its_denial() -> None:
    assert paid(rubric(criterion("number", "n"))) == {"negated"}


def test_a_rubric_that_looks_for_a_word_pays_whoever_writes_it() -> None:
    naive = rubric(criterion("contains", "has-42", params={"texts": ["42"]}))
    found = paid(naive)
    assert {"echo-rubric", "echo-keywords", "hedged", "negated"} <= found
    assert not found & {"no-answer", "nothing", "answer-demand", "wrong-number", "reference"}
    got = attacked(naive)["negated"]
    assert [payer.criterion for payer in got.payers] == ["has-42"]
    assert "as much as the right answer" in got.sentence


def test_a_rubric_of_absences_pays_for_doing_nothing() -> None:
    spec = rubric(criterion("exact", "right"), criterion("steps", "brief", params={"max": 1}))
    assert {"nothing", "no-steps"} <= paid(spec)
    got = attacked(spec)["nothing"]
    assert [p.criterion for p in got.payers] == ["brief"]
    assert "apply only" in advice(BY_ID["nothing"], spec, ["brief"])


def test_a_rubric_that_counts_calls_pays_for_the_same_call_again() -> None:
    params = {"command": "wc", "min": 3}
    spec = rubric(criterion("tool_called", "busy", scope=Scope.TRAJECTORY, params=params))
    assert "call-repeated" in paid(spec)


def test_the_right_answer_that_is_not_paid_is_a_finding() -> None:
    chatty = rubric(criterion("regex", "polite", params={"pattern": "I think"}))
    base = with_answer(PASSED, "I think it is 42")
    case = Case(base, chatty, is_success=True)
    made = BY_ID["reference"].make(case)
    assert made is not None
    got = outcome(BY_ID["reference"], chatty, graded(chatty, made), graded(chatty, base))
    assert got.is_paid
    assert "the right answer alone gets 0.00" in got.sentence


def test_what_cannot_be_graded_is_not_paid() -> None:
    spec = rubric(criterion("environment_reward"))
    nothing = graded(spec, transcript(reward=None))
    got = outcome(BY_ID["nothing"], spec, nothing, graded(spec, FAILED))
    assert (got.is_paid, got.allowed) == (False, 0.0)
    assert "could not be graded" in got.sentence


def test_attacks_are_deterministic_and_change_something() -> None:
    for attack in ATTACKS:
        for base, is_success in ((FAILED, False), (PASSED, True)):
            case = Case(base, SOUND, is_success)
            made = attack.make(case)
            assert made == attack.make(case)
            if attack.limit not in (Limit.SAME, Limit.PAID):
                assert made != base, attack.id


def test_attacks_take_any_rollout() -> None:
    bare = Transcript()
    for attack in ATTACKS:
        attack.make(Case(bare, SOUND, is_success=True))
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS) == len(BY_ID)
    assert {attack.family for attack in ATTACKS} == set(Family)


def test_a_wrong_answer_is_not_paid_by_the_environment_either() -> None:
    made = BY_ID["wrong-number"].make(Case(PASSED, SOUND, is_success=True))
    assert made is not None
    assert (made.answer, made.reward, made.steps[-1].action) == ("52", 0.0, "answer: 52")
    assert gave_up(Case(PASSED, SOUND, is_success=True)).reward == 0.0


def test_state_is_left_as_wrong_as_the_answer() -> None:
    base = transcript(state={"files": {"a.txt": {"size": 2, "text": "42"}}})
    made = BY_ID["wrong-number"].make(Case(base, SOUND, is_success=True))
    assert made is not None
    assert made.state["files"]["a.txt"]["text"] == "52"


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (wrong.with_other_numbers, "42", "52"),
        (wrong.with_other_numbers, "3.14 of 1,234", "4.14 of 2,234"),
        (wrong.with_other_numbers, "0.05 and 0 and 9", "0.06 and 1 and 8"),
        (wrong.with_other_numbers, "none", None),
        (wrong.with_other_names, "It was won by Ana against Boris in May.", None),
        (wrong.with_other_names, "Paris", "Alder"),
        (wrong.with_other_names, "42", None),
        (wrong.negated, "Yes", "No"),
        (wrong.negated, "The file is empty", "The file is not empty"),
        (wrong.negated, "42", "It is not 42"),
        (wrong.negated, '{"ok": true}', '{"ok": false}'),
        (wrong.negated, " ", None),
    ],
)
def test_one_fact_is_wrong(change: wrong.Change, before: str, after: str | None) -> None:
    if after is None and "Ana" in before:
        assert change(before) == "It was won by Boris against Ana in May."
    else:
        assert change(before) == after


@given(st.text(max_size=60))
def test_no_change_leaves_the_text_as_it_was(text: str) -> None:
    for change in (wrong.with_other_numbers, wrong.with_other_names, wrong.negated):
        assert change(text) is None or change(text) != text


def test_judges_are_asked_again_with_another_seed() -> None:
    judge = criterion("judge", "j", scope=Scope.TRAJECTORY, params={"question": "Is it good?"})
    spec = rubric(judge, criterion("exact", "e"))
    other = reseeded(spec)
    assert has_judges(spec)
    assert not has_judges(SOUND)
    assert other.criteria[0].params["seed"] > 0
    assert other.criteria[1] == spec.criteria[1]
