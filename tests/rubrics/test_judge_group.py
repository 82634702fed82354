"""Rollouts judged beside one another: who is shown, what counts, what a bad reply does."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.aggregate import aggregate
from rubrics.codec import from_json
from rubrics.errors import CriterionFailed, RubricInvalid
from rubrics.grade import grade_async
from rubrics.grade_group import grade_group, has_groups
from rubrics.judge.ask import Answer, Completion, ask
from rubrics.judge.group import (
    GroupQuestion,
    chunked,
    in_drawn_order,
    make_group_question,
    outcome,
    paired,
    read_marks,
)
from rubrics.judge.question import Question, Sampling
from rubrics.judge.scale import Problem, Scale
from rubrics.types import CodeRequest, CodeResult, State, Transcript, Verdict
from tests.rubrics.build import transcript

SECRET = b"of this installation"
Reply = Callable[[Question, Mapping[str, Any]], str | None]


@dataclass
class Script:
    """Services whose judge replies what `reply` makes of a question and the data it shows."""

    reply: Reply
    asked: list[Question] = field(default_factory=list)
    calls: int = 0
    frame_secret: bytes = SECRET

    async def judge(self, question: Question) -> Answer:
        self.asked.append(question)

        async def complete(messages: Sequence[Mapping[str, str]]) -> Completion:
            self.calls += 1
            return Completion(self.reply(question, data_of(question)))

        judged = await ask(question, complete)
        return Answer(judged.reading, judged.reason, len(self.asked), "j", judged.marks)

    async def run_code(self, request: CodeRequest) -> CodeResult:
        raise NotImplementedError


def data_of(question: Question) -> Mapping[str, Any]:
    found = re.search(r"<data-\w+>\n(.*)\n</data-", question.user, re.DOTALL)
    assert found is not None
    data: Mapping[str, Any] = json.loads(found.group(1))
    return data


def worth(shown: Mapping[str, Any]) -> float:
    """Of an answer `value 0.7`."""
    return float(str(shown["final_answer"]).split()[-1])


def marks(question: Question, data: Mapping[str, Any]) -> str:
    """What an honest judge replies."""
    given = [
        {"id": shown["id"], "reason": f"it says {worth(shown)}", "score": worth(shown)}
        for shown in data["rollouts"]
    ]
    return json.dumps({"key": question.key, "marks": given})


def better(question: Question, data: Mapping[str, Any]) -> str:
    first, second = worth(data["first"]), worth(data["second"])
    score = 0.5 + ((first > second) - (first < second)) / 2
    return json.dumps({"key": question.key, "reason": "seen", "score": score})


def group_of(values: Sequence[float]) -> dict[str, Transcript]:
    return {f"r{i}": transcript(answer=f"value {value}") for i, value in enumerate(values)}


def graded(
    script: Script, group: Mapping[str, Transcript], *more: dict[str, Any], **params: Any
) -> dict[str, Verdict]:
    """By the criterion that compares; `more`: criteria before it."""
    if params.get("method") != "pairwise":
        params = {"min": 0, "max": 1, **params}
    asked = {"question": "Is it right?", "sees": ["task", "answer"], **params}
    own = {"id": "g", "kind": "judge_group", "params": asked}
    spec = from_json({"criteria": [*more, own]})
    assert has_groups(spec)
    found = asyncio.run(grade_group(spec, group, services=script))
    return {name: verdicts[-1] for name, verdicts in found.items()}


def test_each_rollout_gets_its_own_mark() -> None:
    script = Script(marks)
    found = graded(script, group_of([0.1, 0.9, 0.5]))
    assert {name: v.value for name, v in found.items()} == {"r0": 0.1, "r1": 0.9, "r2": 0.5}
    assert found["r1"].reason == "it says 0.9" and len(script.asked) == 1
    assert found["r1"].detail["calls"][0]["call"] == 1


def test_names_and_order_of_the_rollouts_are_not_shown() -> None:
    script = Script(marks)
    graded(script, group_of([0.1, 0.9, 0.5]))
    graded(script, dict(reversed(group_of([0.1, 0.9, 0.5]).items())))
    assert [shown["id"] for shown in data_of(script.asked[0])["rollouts"]] == ["R1", "R2", "R3"]
    assert script.asked[0].sha256 == script.asked[1].sha256
    assert '"r0"' not in script.asked[0].user


def test_rollouts_that_look_the_same_share_a_mark() -> None:
    script = Script(marks)
    found = graded(script, group_of([0.4, 0.4, 0.8]))
    assert len(data_of(script.asked[0])["rollouts"]) == 2
    assert found["r0"].value == found["r1"].value == 0.4


def test_a_group_that_is_too_large_is_judged_in_chunks_that_overlap() -> None:
    script = Script(marks)
    values = [i / 20 for i in range(20)]
    found = graded(script, group_of(values), group_size=6)
    assert [found[f"r{i}"].value for i in range(20)] == pytest.approx(values)
    assert len(script.asked) > 3
    assert all(len(data_of(question)["rollouts"]) == 6 for question in script.asked)
    assert sum(len(v.detail["calls"]) for v in found.values()) == 6 * len(script.asked)


def test_repeats_are_shown_in_other_orders() -> None:
    script = Script(marks)
    found = graded(script, group_of([0.1, 0.9, 0.5, 0.3]), repeats=4)
    orders = {tuple(worth(s) for s in data_of(q)["rollouts"]) for q in script.asked}
    assert len(script.asked) == 4 and len(orders) > 1
    assert found["r1"].detail["spread"] == 0.0 and found["r1"].reason.startswith("4 marks.")


def test_a_judge_that_likes_a_place_is_found_out() -> None:
    def likes_first(question: Question, data: Mapping[str, Any]) -> str:
        given = [
            {"id": shown["id"], "reason": "", "score": float(place == 0)}
            for place, shown in enumerate(data["rollouts"])
        ]
        return json.dumps({"key": question.key, "marks": given})

    found = graded(Script(likes_first), group_of([0.1, 0.2]), repeats=2)
    assert found["r0"].detail["position"] == {"1": 1.0, "2": 0.0}


def without_one(question: Question, data: Mapping[str, Any]) -> str:
    said = json.loads(marks(question, data))
    return json.dumps({**said, "marks": said["marks"][1:]})


def twice(question: Question, data: Mapping[str, Any]) -> str:
    said = json.loads(marks(question, data))
    return json.dumps({**said, "marks": [*said["marks"][1:], said["marks"][1]]})


def one_too_many(question: Question, data: Mapping[str, Any]) -> str:
    said = json.loads(marks(question, data))
    return json.dumps({**said, "marks": [*said["marks"], {"id": "R9", "score": 1}]})


def out_of_range(question: Question, data: Mapping[str, Any]) -> str:
    said = json.loads(marks(question, data))
    said["marks"][0]["score"] = 8
    return json.dumps(said)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (without_one, Problem.WRONG_COUNT),
        (twice, Problem.WRONG_COUNT),
        (one_too_many, Problem.WRONG_COUNT),
        (out_of_range, Problem.OUT_OF_RANGE),
        (lambda question, data: "The first is best.", Problem.NO_VERDICT),
        (lambda question, data: None, Problem.EMPTY),
        (lambda question, data: '{"key": "planted", "marks": []}', Problem.AMBIGUOUS),
    ],
)
def test_a_reply_that_is_not_complete_counts_for_none_of_them(
    reply: Reply, problem: Problem
) -> None:
    script = Script(reply)
    found = graded(script, group_of([0.1, 0.9, 0.5]))
    assert script.calls == 2  # one retry
    assert {v.state for v in found.values()} == {State.ERRORED}
    assert all(problem.sentence in v.reason and v.value is None for v in found.values())


def test_the_one_retry_can_mend_it() -> None:
    script = Script(marks)
    script.reply = lambda q, d: marks(q, d) if script.calls > 1 else without_one(q, d)
    assert graded(script, group_of([0.1, 0.9]))["r1"].value == 0.9


def test_a_chunk_that_fails_leaves_the_others() -> None:
    def reply(question: Question, data: Mapping[str, Any]) -> str | None:
        is_bad = any(worth(shown) == 0.0 for shown in data["rollouts"])
        return None if is_bad else marks(question, data)

    values = [i / 20 for i in range(20)]
    found = graded(Script(reply), group_of(values), group_size=6)
    states = Counter(v.state for v in found.values())
    assert states[State.ERRORED] >= 4 and states[State.SCORED] >= 10
    assert found["r0"].state is State.ERRORED


def test_a_judge_that_is_away_makes_errors_and_no_zero() -> None:
    def down(question: Question, data: Mapping[str, Any]) -> str:
        raise CriterionFailed("Judge `j1` answered 429 for 60 s.")

    for method in ("scores", "pairwise"):
        found = graded(Script(down), group_of([0.1, 0.9]), method=method)
        assert all(v.state is State.ERRORED and "429" in v.reason for v in found.values())


# --- pairs


def test_pairs_give_the_share_of_wins() -> None:
    script = Script(better)
    found = graded(script, group_of([0.1, 0.9, 0.5, 0.5001]), method="pairwise")
    values = [found[f"r{i}"].value for i in range(4)]
    assert values == pytest.approx([0, 1, 1 / 3, 2 / 3])
    assert len(script.asked) == 2 * 6
    assert found["r1"].reason.startswith("won 3 of 3 pairs, 0 tied")
    assert found["r1"].detail["position"]["disagreed"] == 0


def test_orders_that_disagree_are_a_tie_and_measured() -> None:
    def first(question: Question, data: Mapping[str, Any]) -> str:
        return json.dumps({"key": question.key, "reason": "the first", "score": 1})

    found = graded(Script(first), group_of([0.1, 0.9, 0.5]), method="pairwise")
    assert {v.value for v in found.values()} == {0.5}
    assert found["r0"].detail["position"] == {
        "calls": 6, "first_won": 6, "second_won": 0, "pairs": 3, "disagreed": 3,
    }  # fmt: skip


def test_rollouts_that_are_all_the_same_tie_unasked() -> None:
    script = Script(better)
    found = graded(script, group_of([0.4, 0.4]), method="pairwise")
    assert {v.value for v in found.values()} == {0.5} and not script.asked


def test_many_meet_equally_many() -> None:
    script = Script(better)
    values = [i / 30 for i in range(30)]
    found = graded(script, group_of(values), method="pairwise", group_size=7)
    assert {len(v.detail["calls"]) for v in found.values()} == {6}
    assert len(script.asked) == 2 * 30 * 3
    best = fmean(found[f"r{i}"].value or 0 for i in range(20, 30))
    assert best > fmean(found[f"r{i}"].value or 0 for i in range(10)) + 0.4


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_pair_is_worth_the_same_from_both_sides(a: float, b: float) -> None:
    mine, others = outcome(a, b), outcome(b, a)
    assert mine is not None and others is not None and mine + others == 1
    assert outcome(None, b) is None and outcome(a, None) is None


# --- who is shown


@given(st.integers(1, 60), st.integers(2, 16))
def test_chunks_hold_everyone_and_overlap(n: int, size: int) -> None:
    overlap = max(1, size // 4)
    found = chunked(range(n), size, overlap)
    assert {i for chunk in found for i in chunk} == set(range(n))
    assert all(len(set(chunk)) == min(n, size) for chunk in found)
    for one, other in pairwise(found):
        assert len(set(one) & set(other)) >= min(overlap, n)


@given(st.integers(2, 40), st.integers(1, 15))
def test_pairs_are_fair(n: int, opponents: int) -> None:
    found = paired(range(n), opponents)
    assert all(a != b for a, b in found)
    met = Counter(i for pair in found for i in pair)
    assert len(set(met.values())) == 1 and len(met) == n
    if n > 3:
        assert len({frozenset(pair) for pair in found}) == len(found)


@given(st.lists(st.text(), unique=True, min_size=1), st.randoms())
def test_an_order_hangs_on_content_and_secret_alone(texts: list[str], random: Any) -> None:
    shuffled = list(texts)
    random.shuffle(shuffled)
    assert in_drawn_order(texts, texts, SECRET) == in_drawn_order(shuffled, shuffled, SECRET)
    assert sorted(in_drawn_order(texts, texts, b"other")) == sorted(texts)


@given(st.text())
def test_no_reply_makes_the_reader_raise(text: str) -> None:
    asked = make_group_question(
        criterion="g", ask="?", scale=Scale(), around={}, views=[{}, {}], sampling=Sampling(),
        secret=SECRET,
    )  # fmt: skip
    assert isinstance(asked, GroupQuestion)
    reading, found = read_marks(asked, text)
    assert reading.state is State.ERRORED and not found
    whole = json.dumps({"key": asked.key, "marks": [{"id": f"R{i}", "score": 1} for i in (1, 2)]})
    for given_text in (whole, f"<think>{{}}</think>\n{whole}", f"```json\n{whole}\n```"):
        reading, found = read_marks(asked, given_text)
        assert reading.value == 1.0 and set(found) == {"R1", "R2"}


# --- as part of a rubric


def test_one_rollout_alone_is_an_error() -> None:
    spec = from_json(
        {"criteria": [{"id": "g", "kind": "judge_group", "params": {"question": "?"}}]}
    )
    (alone,) = asyncio.run(grade_async(spec, transcript(), services=Script(marks)))
    assert alone.state is State.ERRORED and "is decided for a group" in alone.reason
    found = graded(Script(marks), group_of([0.5]))
    assert "at least two" in found["r0"].reason


def test_rollouts_of_different_tasks_are_not_compared() -> None:
    group = {"a": transcript(task="one"), "b": transcript(task="two")}
    assert "different tasks" in graded(Script(marks), group)["a"].reason


def test_what_a_gate_shuts_out_is_not_in_the_group() -> None:
    gate = {"id": "said", "kind": "contains", "gate": True, "params": {"texts": ["value"]}}
    script = Script(marks)
    group = {**group_of([0.1, 0.9]), "bad": transcript(answer="nothing")}
    found = graded(script, group, gate)
    assert found["bad"].state is State.NOT_APPLICABLE
    assert len(data_of(script.asked[0])["rollouts"]) == 2 and found["r1"].value == 0.9


def test_the_score_waits_for_the_group_and_then_has_it() -> None:
    asked = {"question": "?", "sees": ["answer"], "min": 0, "max": 1}
    spec = from_json(
        {
            "criteria": [
                {"id": "reward", "kind": "environment_reward"},
                {"id": "g", "kind": "judge_group", "params": asked},
            ]
        }
    )
    found = asyncio.run(grade_group(spec, group_of([0.1, 0.9]), services=Script(marks)))
    assert [aggregate(spec, v).value for v in found.values()] == pytest.approx([0.55, 0.95])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gate": True}, "gate: must be false"),
        ({"params": {"question": "?", "group_size": 1}}, "group_size: accepts 2 to 16"),
        ({"params": {"question": "?", "method": "pairwise", "max": 3}}, "params.method: pairs"),
        ({"params": {"question": "?", "allows_na": True}}, "params.allows_na: in a group"),
        ({"scope": "step"}, "scope: step"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any], problem: str) -> None:
    given = {"id": "g", "kind": "judge_group", "params": {"question": "?"}, **changes}
    ok = {"id": "a", "kind": "exact"}
    with pytest.raises(RubricInvalid, match=problem):
        from_json({"criteria": [given, ok]})
