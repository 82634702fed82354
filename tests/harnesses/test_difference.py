"""Differences of harnesses: nothing is lost, words are marked where two lines are one. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.harnesses.difference import (
    CONTEXT,
    Line,
    compared,
    difference,
    readable,
    words,
)
from tests.optimizer.build import SKILL, demonstration, harness

lines = st.lists(st.sampled_from(["a b c", "a b d", "x", "", "  y z", "one two three"]), max_size=9)


def text_of(line: Line) -> str:
    return "".join(text for _, text in line.pieces)


@given(lines, lines)
def test_lines_that_went_and_came_are_all_there(before: list[str], after: list[str]) -> None:
    found = compared("\n".join(before), "\n".join(after))
    old = [text_of(line) for line in found if line.before is not None]
    new = [text_of(line) for line in found if line.after is not None]
    hidden = sum(line.n_hidden for line in found)
    told = "\n".join(before).splitlines(), "\n".join(after).splitlines()
    assert all(line.n_hidden != 1 for line in found)
    if found and told[0] != told[1]:
        assert len(old) + hidden == len(told[0])
        assert len(new) + hidden == len(told[1])
    for line in found:
        if line.before is not None:
            assert text_of(line) == told[0][line.before - 1]
        if line.after is not None:
            assert text_of(line) == told[1][line.after - 1]


@given(st.text(max_size=60), st.text(max_size=60))
def test_pieces_joined_are_the_lines(before: str, after: str) -> None:
    marked = words(before, after)
    if marked is not None:
        assert tuple("".join(text for _, text in side) for side in marked) == (before, after)


def test_of_a_changed_line_the_words_are_marked() -> None:
    gone, new = compared("Count the lines with wc.\n", "Count the words with wc.\n")
    assert (gone.kind, gone.mark, gone.before, gone.after) == ("gone", "−", 1, None)
    assert [text for differs, text in gone.pieces if differs] == ["lines"]
    assert [text for differs, text in new.pieces if differs] == ["words"]


def test_lines_with_little_in_common_are_shown_as_a_whole() -> None:
    gone, new = compared("Count the lines with wc.", "Ask for help when lost!")
    assert not any(differs for line in (gone, new) for differs, _ in line.pieces)


def test_what_lies_far_from_a_change_is_a_gap() -> None:
    before = "\n".join(f"line {n}" for n in range(40))
    found = compared(before, before.replace("line 20", "line twenty"))
    assert [line.kind for line in found] == (
        ["gap"] + ["same"] * CONTEXT + ["gone", "new"] + ["same"] * CONTEXT + ["gap"]
    )
    assert found[0].n_hidden + found[-1].n_hidden + 2 * CONTEXT + 1 == 40
    assert text_of(found[0]) == "17 equal lines"


def test_a_difference_in_line_ends_is_told() -> None:
    (line,) = compared("a\n", "a")
    assert text_of(line) == "only line ends differ"
    assert compared("a\n", "a\n") == []


def test_components_are_told_in_the_order_in_which_people_read() -> None:
    before = harness(demonstrations=(demonstration("a"),), skills=(SKILL,))
    after = harness(
        instructions="Other words.\n",
        demonstrations=(demonstration("a"), demonstration("b")),
        tools=({"name": "bash", "description": "Runs a command."},),
        model="large",
    )
    found = difference(before.components(), after.components())
    assert [(each.path, each.change) for each in found] == [
        ("instructions.md", "changed"),
        ("skills/count-lines/SKILL.md", "removed"),
        ("demonstrations.jsonl", "changed"),
        ("tools.json", "added"),
        ("harness.yaml", "changed"),
    ]
    assert difference(after.components(), after.components()) == []


def test_demonstrations_are_compared_as_conversations() -> None:
    one, two = (
        harness(demonstrations=(demonstration("a"),)),
        harness(demonstrations=(demonstration("a"), demonstration("b"))),
    )
    (found,) = difference(one.components(), two.components())
    assert (found.n_gone, found.n_new) == (0, 6)
    assert "assistant: wc -l < a.txt" in [text_of(line) for line in found.lines]
    assert readable("demonstrations.jsonl", "{broken") == "{broken"
