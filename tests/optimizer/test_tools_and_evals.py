from __future__ import annotations

import json

import pytest

from optimizer.edits import Edit, Op, apply_edits
from optimizer.errors import EditInvalid, HarnessInvalid
from optimizer.evals import OutcomeEval, advice, parse_evals, problems
from optimizer.harness import Harness
from optimizer.skills import linked_files
from tests.optimizer.build import SKILL, harness


def tools(*edits: tuple[str, str]) -> list[dict[str, object]]:
    changes = [
        Edit(Op.SET if text else Op.DELETE, "tools.json", anchor, text) for anchor, text in edits
    ]
    return [dict(tool) for tool in apply_edits(harness(), changes).tools]


def test_tools_and_parameters_are_described_by_name() -> None:
    assert tools(("bash", "Runs."), ("bash.command", "The line."), ("bash.cwd", "Where.")) == [
        {
            "name": "bash",
            "description": "Runs.",
            "parameters": {
                "properties": {
                    "command": {"description": "The line."},
                    "cwd": {"description": "Where."},
                }
            },
        }
    ]


def test_a_tool_may_have_dots_in_its_name() -> None:
    known = harness(tools=({"name": "db.query", "description": "x"}, {"name": "db"}))
    edit = Edit(Op.SET, "tools.json", "db.query.sql", "One statement.")
    first = apply_edits(known, [edit]).tools[0]
    assert first["parameters"]["properties"]["sql"]["description"] == "One statement."


def test_a_description_can_be_taken_back() -> None:
    described = harness(tools=({"name": "bash", "description": "x", "strict": True},))
    after = apply_edits(described, [Edit(Op.DELETE, "tools.json", "bash")])
    assert after.tools == ({"name": "bash", "strict": True},)
    once = apply_edits(harness(), [Edit(Op.SET, "tools.json", "bash.command", "x")])
    assert apply_edits(once, [Edit(Op.DELETE, "tools.json", "bash.command")]).tools == ()


def test_other_operations_on_tools_are_refused() -> None:
    for edit in (
        Edit(Op.APPEND, "tools.json", content="[]"),
        Edit(Op.SET, "tools.json", content="[]"),
    ):
        with pytest.raises(EditInvalid, match="accepts set and delete"):
            apply_edits(harness(), [edit])


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ('[{"name": "a"}, {"name": "a"}]', "name used twice: a"),
        ('[{"name": " "}]', "accepts a list of objects with name"),
        ('[{"name": "a", "parameters": []}]', "a: parameters accepts a JSON schema"),
        ('[{"name": "a", "parameters": {"properties": {"b": 1}}}]', "with properties"),
        (
            '[{"name": "a", "parameters": {"properties": {"b": {"description": 1}}}}]',
            r"a\.b: description accepts text",
        ),
    ],
)
def test_mistakes_in_tools_are_named(file: str, message: str) -> None:
    with pytest.raises(HarnessInvalid, match=message):
        Harness.from_components({"tools.json": file})


# --- tests of skills


def test_outcome_tests_of_a_skill_are_read() -> None:
    record = {
        "skill_name": "count-lines",
        "evals": [
            {"id": 1, "prompt": "How many lines?", "expected_output": "3", "assertions": ["3"]},
            {"id": "b", "prompt": "And here?", "files": ["evals/files/a.txt"]},
        ],
    }
    assert parse_evals(json.dumps(record), "count-lines") == (
        OutcomeEval("1", "How many lines?", "3", assertions=("3",)),
        OutcomeEval("b", "And here?", files=("evals/files/a.txt",)),
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "accepts an object with skill_name"),
        ({"skill_name": "other", "evals": []}, "the skill is 'count-lines'"),
        ({"evals": [{"id": 1}]}, "eval 1: prompt accepts text"),
        ({"evals": [{"prompt": "x"}]}, "eval 1: id accepts"),
        ({"evals": [{"id": 1, "prompt": "x", "question": "y"}]}, "eval 1: accepts id, prompt"),
        ({"evals": [{"id": 1, "prompt": "x", "files": "a"}]}, "files accepts a list"),
        ({"evals": [{"id": 1, "prompt": "x"}, {"id": "1", "prompt": "y"}]}, "id used twice: 1"),
    ],
)
def test_mistakes_in_outcome_tests_are_named(record: object, message: str) -> None:
    with pytest.raises(HarnessInvalid, match=message):
        parse_evals(json.dumps(record), "count-lines")


def test_a_harness_with_foreign_tests_is_imported_and_told_so() -> None:
    files = {
        "skills/count-lines/evals/evals.json": '[{"question": "x"}]',
        "skills/count-lines/evals/triggers.json": "[",
        "skills/count-lines/evals/files/a.txt": "1\n",
    }
    subject = harness(skills=(SKILL,), files=files)
    assert Harness.from_components(subject.components()) == subject
    assert [problem.split(":")[0] for problem in problems(subject)] == list(files)[:2]
    assert advice(subject) == []


def test_files_that_a_text_names_are_found() -> None:
    text = "See [a](references/a.md), `scripts/run.sh` and ./assets/t.csv; not my/references/x.md."
    assert linked_files(text) == ["references/a.md", "scripts/run.sh", "assets/t.csv"]
