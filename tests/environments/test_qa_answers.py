"""When an answer is right: examples of each comparison, and what holds for any text."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.environments.qa.answers import (
    QaTask,
    UngradableError,
    grade,
    letter_of,
    number_of,
)


def task(*answers: str, **fields: Any) -> QaTask:
    return QaTask.from_json({"key": "a", "prompt": "?", "answers": list(answers), **fields})


@pytest.mark.parametrize(
    ("fields", "answers", "reply", "reward"),
    [
        ({}, ["New  York"], " New York\n", 1.0),
        ({}, ["Paris"], "paris", 0.0),
        ({"ignore": ["case"]}, ["Paris"], "PARIS", 1.0),
        ({"ignore": ["case", "punctuation", "articles"]}, ["cat"], "The cat!", 1.0),
        ({"ignore": ["accents"]}, ["Zürich"], "Zurich", 1.0),
        ({}, ["one", "1"], "1", 1.0),
        ({"match": "contains"}, ["art"], "It is a party", 0.0),
        ({"match": "contains", "ignore": ["case"]}, ["art"], "Art, of course", 1.0),
        ({"match": "number"}, ["1234.5"], "It is 1,234.50 m", 1.0),
        ({"match": "number"}, ["7"], "6 or 7", 0.0),
        ({"match": "number", "take": "last"}, ["7"], "3 + 4 = 7", 1.0),
        ({"match": "number", "tolerance": 0.01}, ["3.14"], "3.1415", 1.0),
        ({"match": "number", "relative_tolerance": 0.1}, ["-100"], "-91", 1.0),
        ({"match": "number"}, ["7"], "seven", 0.0),
        ({"match": "choice"}, ["B"], "b)", 1.0),
        ({"match": "choice"}, ["B"], "The answer is B.", 1.0),
        ({"match": "choice"}, ["A"], "A, B or C", 0.0),
        ({"match": "choice"}, ["A"], "A cat is what I want", 0.0),
        ({"match": "regex"}, [r"^\d{4}-\d\d$"], "2024-05", 1.0),
        (
            {"match": "json"},
            ['{"a": 1, "b": [1, 2]}'],
            '```json\n{"b": [1, 2.0], "a": 1}\n```',
            1.0,
        ),
        ({"match": "json"}, ["[1, 2]"], "[2, 1]", 0.0),
        ({"match": "json"}, ["1"], "true", 0.0),
        ({"match": "json"}, ['{"a": 1}'], "{", 0.0),
        ({"match": "json", "partial": True}, ['{"a": 1, "b": 2}'], '{"a": 1, "b": 3}', 0.5),
        ({"match": "json", "partial": True}, ['{"a": 1}'], '{"a": 1, "b": 1, "c": 1}', 1 / 3),
    ],
)
def test_what_is_right(
    fields: dict[str, Any], answers: list[str], reply: str, reward: float
) -> None:
    assert grade(task(*answers, **fields), reply) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "answers: 0 given"),
        ({"answers": [1]}, "answers: accepts a list of texts"),
        ({"answers": ["x"], "match": "fuzzy"}, "match: 'fuzzy'; accepts exact"),
        ({"answers": ["x"], "match": "number"}, "'x' is not a number"),
        ({"answers": ["ab"], "match": "choice"}, "one letter from A to Z"),
        ({"answers": ["("], "match": "regex"}, "is no pattern"),
        ({"answers": ["{"], "match": "json"}, "is not JSON"),
        ({"answers": ["!"], "ignore": ["punctuation"]}, "is empty once normalised"),
        ({"answers": ["x"], "ignore": ["colour"]}, "ignore: 'colour'"),
        ({"answers": ["1"], "match": "number", "tolerance": -1}, "tolerance: '-1'"),
        ({"answers": ["x"], "answer": "y"}, "answer: unknown; accepts answers"),
    ],
)
def test_a_task_that_cannot_be_graded_is_refused(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        QaTask.from_json(record)


def test_a_pattern_that_never_ends_is_an_error_and_no_verdict() -> None:
    started = time.monotonic()
    with pytest.raises(UngradableError, match="nested repetitions"):
        grade(task(r"^(a|aa)+$", match="regex"), "a" * 60 + "b")
    assert time.monotonic() - started < 20


MATCHES = st.sampled_from(["exact", "contains", "number", "choice", "regex", "json"])
ANSWER = {"exact": "x y", "contains": "x", "number": "7", "choice": "B", "regex": "x", "json": "1"}


@given(MATCHES, st.text(max_size=200), st.booleans())
def test_any_text_gets_a_reward_between_zero_and_one(match: str, reply: str, last: bool) -> None:
    found = grade(task(ANSWER[match], match=match, take="last" if last else "only"), reply)
    assert 0.0 <= found <= 1.0


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=50))
def test_the_answer_itself_is_right_however_it_is_spaced(text: str) -> None:
    if not text.split():
        return
    spaced = f"\n {'  '.join(text.split(' '))}\t"
    assert grade(task(text), spaced) == 1.0
    assert grade(task(text, match="contains"), f"So: {text} !") == 1.0


@given(st.integers(-(10**9), 10**9))
def test_a_number_is_read_with_and_without_separators(number: int) -> None:
    assert number_of(str(number)) == number_of(f"{number:,}") == number
    assert number_of(f"{number} and {number + 1}") is None


@given(st.permutations("ABCDEFG"))
def test_a_reply_that_lists_all_letters_or_numbers_is_never_right(letters: list[str]) -> None:
    assert letter_of(", ".join(letters)) is None
    assert number_of(" ".join(str(ord(letter)) for letter in letters)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON)
def test_a_json_value_equals_itself_and_nothing_around_it(value: Any) -> None:
    text = json.dumps(value)
    assert grade(task(text, match="json"), json.dumps(value, indent=2)) == 1.0
    assert grade(task(text, match="json"), json.dumps([value])) == 0.0


def test_a_record_survives_writing_and_reading() -> None:
    made = task("1", "2", match="number", tolerance=0.5, take="last")
    assert QaTask.from_json(json.loads(json.dumps(made.as_json()))) == made
