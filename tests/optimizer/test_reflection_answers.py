"""Answers of reflectors: tolerant of form, never guessing, never raising."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.edits import Op
from optimizer.reflection import Mode, read_answer

ENTRY: dict[str, Any] = {
    "op": "append",
    "component": "instructions.md",
    "anchor": "",
    "content": "Look before you answer.",
    "tasks": ["t1", "t2"],
    "why": "it guessed",
}


def written(*entries: Any, cause: str = "It guesses.", field: str = "edits") -> str:
    return json.dumps({"cause": cause, field: list(entries or (ENTRY,))})


def test_a_plain_answer_is_read() -> None:
    answer = read_answer(written())
    assert (answer.cause, answer.problems, answer.is_read) == ("It guesses.", (), True)
    (edit,) = answer.edits
    assert (edit.op, edit.component, edit.content) == (
        Op.APPEND,
        ENTRY["component"],
        ENTRY["content"],
    )
    assert (edit.sources, edit.operator) == (("t1", "t2"), "reflection")


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "```json\n{}\n```",
        '<think>If {{a}} then {{b}}. Maybe {{"edits": 3}}?</think>\n{}',
        "swallowed its opening tag</think>{}",
        "Here is what I found, with {{braces}} in it:\n\n{}\n\nI hope that this helps.",
        "{}\n\nThe same once more:\n{}",
        "\ufeff \n{}<|im_end|>",
    ],
)
def test_the_form_around_an_answer_does_not_matter(form: str) -> None:
    text = written()
    assert read_answer(form.replace("{}", text).replace("{{", "{").replace("}}", "}")).edits == (
        read_answer(text).edits
    )


@pytest.mark.parametrize(
    ("slip", "said"),
    [
        ('{"edits": [{"op": "Add", "component": "`instructions.md`", "content": "x",},],}', "x"),
        ('{"Edits": {"op": "append", "component": "./instructions.md", "content": "x"}}', "x"),
        (
            '{"edits": [{"op": "append", "component": "instructions.md", "content": "x\ny"}]}',
            "x\ny",
        ),
        (
            '{"edits": [{"op": "APPEND", "component": "instructions.md", "content": "a, ]"},]}',
            "a, ]",
        ),
    ],
)
def test_slips_that_change_no_meaning_are_read_over(slip: str, said: str) -> None:
    (edit,) = read_answer(slip).edits
    assert (edit.op, edit.component, edit.content) == (Op.APPEND, "instructions.md", said)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "empty"),
        ("   ", "empty"),
        ("I would tell it to look first.", "no JSON object"),
        ("<html><body>502 Bad Gateway</body></html>", "no JSON object"),
        ('{"error": {"message": "quota"}}', "no JSON object"),
        (written()[:-40], "cut off"),
        ("<think>First I look at", "cut off"),
        (written() + "\n" + written({**ENTRY, "content": "Other."}), "several answers"),
        ('{"edits": "append a line"}', "accepts a list"),
        ('{"edits": [], "edits": [1]}', "stands twice"),
        ('{"edits": [], "Edits": [1]}', "differ in case"),
        ('{"edits": [{"op": append}]}', "cannot be read"),
        ('{"edits": NaN}', "cannot be read"),
        ('{"edits": ' + "[" * 5_000 + "]" * 5_000 + "}", "nested too deeply"),
        ("{" * 10_000, "brackets that begin no object"),
        ('{"edits": ' * 3_000, "nested too deeply"),
    ],
)
def test_what_is_no_answer_says_why(text: str | None, problem: str) -> None:
    answer = read_answer(text)
    assert not answer.is_read
    assert answer.edits == ()
    assert problem in answer.problems[0]


def test_an_edit_may_speak_of_reasoning() -> None:
    entry = {**ENTRY, "content": "Think inside <think> and </think>, {then} answer."}
    (edit,) = read_answer(written(entry)).edits
    assert edit.content == entry["content"]


def test_nothing_to_propose_is_an_answer() -> None:
    answer = read_answer('{"cause": "None of it is the harness\'s fault.", "edits": []}')
    assert (answer.is_read, answer.edits, answer.problems) == (True, (), ())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"op": "improve"}, "op is 'improve'"),
        ({"op": None}, "op is missing"),
        ({"component": 7}, "component accepts text, not a number"),
        ({"content": ""}, "content is empty"),
        ({"content": ["a"]}, "content accepts text, not a list"),
        ({"op": "delete", "anchor": ""}, "anchor is missing"),
    ],
)
def test_one_bad_edit_leaves_the_others_standing(change: dict[str, Any], problem: str) -> None:
    answer = read_answer(written({**ENTRY, **change}, ENTRY, 5))
    assert len(answer.edits) == 1
    assert problem in answer.problems[0]
    assert answer.problems[0].startswith("edits, number 1")
    assert answer.problems[1] == "edits, number 3: accepts an object, not a number"


def test_each_mode_makes_its_own_edits() -> None:
    skill = {"name": "count", "description": "Counts. Use for numbers.", "body": "Use wc.\n"}
    (edit,) = read_answer(written(skill, field="skills"), Mode.SKILL).edits
    assert (edit.op, edit.component, json.loads(edit.content)["body"]) == (
        Op.APPEND, "skills", "Use wc."
    )  # fmt: skip
    tool = {"tool": "search", "parameter": "query", "description": "Words of the subject."}
    (edit,) = read_answer(written(tool, field="descriptions"), Mode.TOOLS).edits
    assert (edit.op, edit.component, edit.anchor) == (Op.SET, "tools.json", "search.query")
    found = {"skill": "count", "description": "Counts lines."}
    (edit,) = read_answer(written(found, field="descriptions"), Mode.TRIGGERS).edits
    assert (edit.component, edit.anchor) == ("skills/count/SKILL.md", "description")


def test_a_skill_may_be_given_as_an_object() -> None:
    entry = {"op": "append", "component": "skills", "content": {"name": "a", "description": "b"}}
    (edit,) = read_answer(written(entry)).edits
    assert json.loads(edit.content) == {"name": "a", "description": "b"}


# --- fuzz ----------------------------------------------------------------------------------------

letters = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
storable = st.text(letters | st.sampled_from('{}[]",\\\n`'), max_size=30).map(
    lambda text: f"a{text}"
)
edits = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["append", "insert", "replace"]),
            "component": st.just("instructions.md"),
            "anchor": storable,
            "content": storable,
        }
    ),
    max_size=4,
)


@given(st.text(), st.sampled_from(list(Mode)))
def test_no_text_makes_it_raise(text: str, mode: Mode) -> None:
    read_answer(text, mode)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(json_values, st.sampled_from(list(Mode)))
def test_no_values_make_it_raise(value: Any, mode: Mode) -> None:
    read_answer(json.dumps({mode.field: value}), mode)
    read_answer(json.dumps({mode.field: [value, {"op": value, "tasks": value}]}), mode)


@given(edits, st.data())
def test_a_cut_answer_gives_nothing(entries: list[dict[str, str]], data: st.DataObject) -> None:
    text = written(*entries) if entries else '{"cause": "", "edits": []}'
    at = data.draw(st.integers(0, len(text) - 1))
    answer = read_answer(text[:at])
    assert not answer.is_read
    assert answer.edits == ()


@given(edits, st.sampled_from(["{}", "```\n{}\n```", "So:\n{}", "<think>x</think>{}"]))
def test_edits_come_back_as_they_were_written(entries: list[dict[str, str]], form: str) -> None:
    text = written(*entries) if entries else '{"cause": "", "edits": []}'
    found = read_answer(form.replace("{}", text))
    assert [(e.op, e.content) for e in found.edits] == [(e["op"], e["content"]) for e in entries]


@given(edits, edits)
def test_two_answers_are_one_only_if_they_are_equal(
    first: list[dict[str, str]], second: list[dict[str, str]]
) -> None:
    text = json.dumps({"edits": first}) + "\n" + json.dumps({"edits": second})
    assert read_answer(text).is_read == (first == second)
