from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.edits import Edit, Op, apply_edits, conflict_groups, paragraphs
from optimizer.errors import EditInvalid
from optimizer.harness import INSTRUCTIONS, Harness
from tests.optimizer.build import SKILL, add, demonstration, drop, harness, put, say

BODY = "skills/count-lines/SKILL.md"


def instructions(*edits: Edit) -> list[str]:
    return paragraphs(apply_edits(harness(), edits).instructions)


@pytest.mark.parametrize(
    ("edit", "result"),
    [
        (say("New."), ["You answer questions.", "One line per reply.", "New."]),
        (say("New.", op=Op.INSERT), ["New.", "You answer questions.", "One line per reply."]),
        (
            say("New.", op=Op.INSERT, anchor="answer"),
            ["You answer questions.", "New.", "One line per reply."],
        ),
        (say("New.", op=Op.REPLACE, anchor="answer"), ["New.", "One line per reply."]),
        (say("", op=Op.DELETE, anchor="answer"), ["One line per reply."]),
        (say("New.", op=Op.SET), ["New."]),
    ],
)
def test_instructions_are_edited_by_paragraph(edit: Edit, result: list[str]) -> None:
    assert instructions(edit) == result


@pytest.mark.parametrize("anchor", ["nowhere", "e"])
def test_an_anchor_must_be_in_one_place(anchor: str) -> None:
    with pytest.raises(EditInvalid, match="it must be in one"):
        instructions(say("New.", op=Op.REPLACE, anchor=anchor))


def test_demonstrations_are_edited_by_id() -> None:
    start = harness(demonstrations=(demonstration("a"), demonstration("b")))
    insert = Edit(Op.INSERT, "demonstrations.jsonl", anchor="a", content=demonstration("x").line())
    result = apply_edits(start, [add("c"), insert, drop("b")])
    assert [item.id for item in result.demonstrations] == ["a", "x", "c"]
    with pytest.raises(EditInvalid, match="exists"):
        apply_edits(start, [add("a")])
    with pytest.raises(EditInvalid, match="0 places"):
        apply_edits(start, [drop("z")])


def test_a_field_of_the_configuration_is_set_and_checked() -> None:
    assert apply_edits(harness(), [put("sampling.temperature", 0.5)]).sampling.temperature == 0.5
    assert apply_edits(harness(), [put("model", "m")]).model == "m"
    for name, value in [("sampling.temperature", 9), ("sampling.heat", 1), ("model.x", 1)]:
        with pytest.raises(EditInvalid, match=r"harness\.yaml"):
            apply_edits(harness(), [put(name, value)])


@given(st.sampled_from(Op), st.text(max_size=40), st.sampled_from(["", "description", "wc", "---"]))
def test_no_edit_of_a_skill_can_damage_its_frontmatter(op: Op, content: str, anchor: str) -> None:
    start = harness(skills=(SKILL,))
    try:
        result = apply_edits(start, [Edit(op, BODY, anchor, content)])
    except EditInvalid:
        return
    (skill,) = Harness.from_components(result.components()).skills
    assert skill.name == "count-lines"
    assert skill.extra == {}
    is_set = op is Op.SET and anchor == "description"
    assert skill.description == (content if is_set else SKILL.description)


def test_a_skill_can_be_added_and_removed() -> None:
    new = Edit(
        Op.APPEND, "skills", content='{"name": "sum-up", "description": "Sums.", "body": "awk"}'
    )
    grown = apply_edits(harness(skills=(SKILL,)), [new])
    assert [skill.name for skill in grown.skills] == ["count-lines", "sum-up"]
    shrunk = apply_edits(grown, [Edit(Op.DELETE, "skills", anchor="count-lines")])
    assert [skill.name for skill in shrunk.skills] == ["sum-up"]
    for content in ('{"name": "A", "description": "x"}', "[]", '{"name": "a"}'):
        with pytest.raises(EditInvalid):
            apply_edits(harness(), [Edit(Op.APPEND, "skills", content=content)])


def test_tool_descriptions_are_set() -> None:
    tool = {
        "name": "bash",
        "description": "old",
        "parameters": {"properties": {"command": {"type": "string"}}},
    }
    start = harness(tools=(tool,))
    result = apply_edits(
        start,
        [
            Edit(Op.SET, "tools.json", "bash", "Runs it."),
            Edit(Op.SET, "tools.json", "bash.command", "The line."),
        ],
    )
    assert result.tools[0]["description"] == "Runs it."
    assert result.tools[0]["parameters"]["properties"]["command"]["description"] == "The line."
    assert start.tools[0]["description"] == "old"


def test_alternatives_exclude_each_other() -> None:
    edits = [
        say("A", group="style"),
        add("a"),
        say("B", group="style"),
        say("C", op=Op.REPLACE, anchor="x"),
        say("D", op=Op.INSERT, anchor="x"),
        say("E", op=Op.INSERT, anchor="y"),
        say("F", op=Op.INSERT, anchor="y"),
    ]
    assert conflict_groups(edits) == [(0, 2), (1,), (3, 4), (5,), (6,)]
    with pytest.raises(EditInvalid, match="exclude each other"):
        apply_edits(harness(), [edits[0], edits[2]])


def test_identity_is_what_an_edit_does() -> None:
    assert say("A", support=3, operator="x").sha256 == say("A").sha256
    assert say("A").sha256 != say("A", op=Op.INSERT).sha256


def test_edits_survive_json() -> None:
    edit = say("A", support=2, sources=("t1", "t2"), operator="x", group="g")
    assert Edit.from_json(edit.to_json()) == edit
    for bad in ({}, {"op": "explode", "component": INSTRUCTIONS}):
        with pytest.raises(EditInvalid, match="needs op"):
            Edit.from_json(bad)


def test_other_components_cannot_be_edited() -> None:
    with pytest.raises(EditInvalid, match="cannot be edited"):
        apply_edits(harness(), [Edit(Op.SET, "/etc/passwd", content="x")])
