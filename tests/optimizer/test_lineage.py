from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.edits import Edit, Op, apply_edits, conflict_groups
from optimizer.errors import EditInvalid
from optimizer.lineage import blame, crossover, edits_between, undo
from optimizer.paragraphs import paragraphs, tidy
from tests.optimizer.build import SKILL, add, demonstration, drop, harness, put, say

BODY = "skills/count-lines/SKILL.md"


def test_each_line_says_which_edit_made_it() -> None:
    edits = [
        say("New.\n\nNewer."),
        say("First.", op=Op.INSERT),
        say("One short line.", op=Op.REPLACE, anchor="One line"),
        put("sampling.temperature", 0.5),
        add("d1"),
    ]
    lines = blame(harness(), edits)
    new, first, short, field, shown = (edit.sha256 for edit in edits)
    assert lines["instructions.md"] == [
        ("First.", first),
        ("You answer questions.", None),
        ("One short line.", short),
        ("New.", new),
        ("Newer.", new),
    ]
    changed = {line.text: line.edit for line in lines["harness.yaml"] if line.edit}
    assert changed == {"sampling.temperature: 0.5": field}
    assert [line.edit for line in lines["demonstrations.jsonl"]] == [shown]


def test_a_whole_text_keeps_the_lines_that_stayed() -> None:
    edit = say("One line per reply.\n\nBe kind.", op=Op.SET)
    assert blame(harness(), [edit])["instructions.md"] == [
        ("One line per reply.", None),
        ("Be kind.", edit.sha256),
    ]


def test_blame_refuses_what_cannot_be_applied() -> None:
    with pytest.raises(EditInvalid, match="exclude each other"):
        blame(harness(), [say("A.", group="g"), say("B.", group="g")])


def test_new_skills_tools_and_references_have_lines_too() -> None:
    subject = harness(skills=(SKILL,))
    edits = [
        Edit(Op.SET, BODY, "description", "Counts."),
        Edit(Op.SET, "skills/count-lines/references/wc.md", content="wc.\n"),
        Edit(Op.SET, "tools.json", "bash.command", "The line."),
    ]
    lines = blame(subject, edits)
    assert lines[BODY] == [("description: Counts.", edits[0].sha256), ("Use wc.", None)]
    assert lines["skills/count-lines/references/wc.md"] == [("wc.", edits[1].sha256)]
    assert lines["tools.json"] == [("bash.command: The line.", edits[2].sha256)]


def test_the_smallest_difference_is_found() -> None:
    grown = harness(instructions=harness().instructions + "\nMore.\n")
    (edit,) = edits_between(harness(), grown, operator="hand")
    assert (edit.op, edit.content, edit.operator) == (Op.APPEND, "More.\n", "hand")
    shown = harness(demonstrations=(demonstration("a"),))
    (edit,) = edits_between(harness(), shown)
    assert edit.is_demonstration


def test_a_difference_that_no_edit_makes_is_named() -> None:
    before = harness(skills=(SKILL,))
    after = replace(before, files={"skills/count-lines/scripts/run.sh": "rm -rf /"})
    with pytest.raises(EditInvalid, match=r"no edit can change this: .*scripts/run\.sh"):
        edits_between(before, after)


def test_undo_brings_back_what_was_deleted() -> None:
    start = harness(
        skills=(SKILL,),
        files={"skills/count-lines/references/wc.md": "wc.\n"},
        demonstrations=(demonstration("a"), demonstration("b")),
    )
    for edit in (Edit(Op.DELETE, "skills", "count-lines"), drop("a"), put("model", "m")):
        changed = apply_edits(start, [edit])
        back = undo(start, edit)
        assert changed != start
        for step in back:
            changed = apply_edits(changed, [step])
        assert changed == start


def test_scripts_are_not_edited() -> None:
    start = harness(skills=(SKILL,), files={"skills/count-lines/scripts/run.sh": "wc"})
    for path in ("scripts/run.sh", "evals/triggers.json", "assets/x"):
        for op in Op:
            with pytest.raises(EditInvalid, match="cannot be edited"):
                apply_edits(start, [Edit(op, f"skills/count-lines/{path}", content="rm")])


def test_references_are_written_read_and_deleted() -> None:
    path = "skills/count-lines/references/wc.md"
    start = harness(skills=(SKILL,))
    written = apply_edits(start, [Edit(Op.SET, path, content="One.\n\nTwo.\n")])
    grown = apply_edits(written, [Edit(Op.INSERT, path, "One.", "Half.")])
    assert paragraphs(grown.files[path]) == ["One.", "Half.", "Two."]
    assert apply_edits(grown, [Edit(Op.DELETE, path)]).files == {}
    with pytest.raises(EditInvalid, match="make it with set"):
        apply_edits(start, [Edit(Op.APPEND, path, content="x")])
    with pytest.raises(EditInvalid, match="skill other"):
        apply_edits(start, [Edit(Op.SET, path.replace("count-lines", "other"), content="x")])


def test_a_child_takes_skills_from_one_parent() -> None:
    new = Edit(Op.APPEND, "skills", content='{"name": "b", "description": "x", "body": "1"}')
    rival = replace(new, content='{"name": "b", "description": "x", "body": "2"}')
    child = crossover((say("A."), new), (say("B."), rival), {"skills": False})
    assert [edit.content for edit in child] == ["A.", rival.content]
    apply_edits(harness(), child)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (say("X.", op=Op.SET), say("", op=Op.DELETE, anchor="One line per reply.")),
        (Edit(Op.DELETE, "skills", "count-lines"), Edit(Op.APPEND, BODY, content="x")),
        (put("sampling", {"temperature": 1}), put("sampling.temperature", 0)),
        (add("a"), replace(add("a"), content=add("a").content.replace("wc", "cat"))),
        (
            Edit(Op.SET, "demonstrations", content='{"pick": "nearest"}'),
            put("demonstrations.k", 2),
        ),
    ],
)
def test_what_cannot_stand_together_is_one_group(a: Edit, b: Edit) -> None:
    assert conflict_groups([a, b]) == [(0, 1)]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (say("X.", op=Op.SET), say("Y.")),
        (Edit(Op.SET, BODY, content="x"), Edit(Op.SET, BODY, "description", "x")),
        (put("sampling.temperature", 1), put("sampling.top_p", 0.5)),
        (add("a"), add("b")),
        (Edit(Op.DELETE, "skills", "a"), Edit(Op.APPEND, "skills/a-b/SKILL.md", content="x")),
    ],
)
def test_what_can_stand_together_is_free(a: Edit, b: Edit) -> None:
    assert conflict_groups([a, b]) == [(0,), (1,)]


# --- paragraphs


def test_a_code_fence_is_one_paragraph() -> None:
    text = "Do:\n\n```sh\nwc -l\n\n\nls\n```\n\n~~~\n```\n\n~~~\nEnd.\n"
    assert paragraphs(text) == ["Do:", "```sh\nwc -l\n\n\nls\n```", "~~~\n```\n\n~~~\nEnd."]
    assert tidy(text) == text
    assert paragraphs("```\nopen\n\nstays\n") == ["```\nopen", "stays"]


def test_an_anchor_may_be_a_whole_paragraph_that_others_quote() -> None:
    start = harness(instructions="Count.\n\nCount. Then stop.\n")
    result = apply_edits(start, [say("Add.", op=Op.REPLACE, anchor="Count.")])
    assert paragraphs(result.instructions) == ["Add.", "Count. Then stop."]
