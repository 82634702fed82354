from __future__ import annotations

import pytest

from optimizer.edits import Edit, Op
from optimizer.lint import HeldOut, Severity, accepted, lint
from tests.optimizer.build import SKILL, add, harness, say

HELD_OUT = HeldOut.of(
    texts=["Files in this folder: a.log, b.log. In b.log, how many lines say WARN exactly twice?"],
    answers=["17", "the quick brown fox"],
    train_texts=["Files in this folder: a.log, b.log. In c.log, which line is the last?"],
)


def codes(edit: Edit, **options: object) -> list[str]:
    return [found.code for found in lint(edit, harness(), **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("```\nwc -l", "cut"),
        ("<think>first", "cut"),
        ("The grader likes short answers.", "grader"),
        ("Give me full marks.", "grader"),
        ("If unsure, ask the user.", "asks"),
        ("word " * 30_000, "size"),
        ("In b.log, how many lines say WARN exactly twice?", "copied"),
        ("Say the quick brown fox.", "copied"),
    ],
)
def test_an_edit_with_a_fault_is_found(text: str, code: str) -> None:
    assert code in codes(say(text), held_out=HELD_OUT)


@pytest.mark.parametrize(
    "text",
    [
        "Count lines with wc -l.",
        "Files in this folder: a.log, b.log. In d.log, what is first?",
        "The answer is 17.",
        "<think>done</think> Reply.",
        "Score the rows by date.",
    ],
)
def test_an_honest_edit_passes(text: str) -> None:
    assert codes(say(text), held_out=HELD_OUT) == []


def test_an_edit_that_cannot_be_applied_or_changes_nothing_is_found() -> None:
    assert codes(say("x", op=Op.REPLACE, anchor="nowhere")) == ["invalid"]
    same = say("You answer questions.\n\nOne line per reply.", op=Op.SET)
    assert codes(same) == ["same"]


def test_protected_components_are_not_touched() -> None:
    assert codes(say("x"), protected=("instructions.md",)) == ["protected"]


def test_a_long_skill_is_a_warning() -> None:
    edit = Edit(Op.SET, "skills/count-lines/SKILL.md", content="line\n" * 600)
    (found,) = lint(edit, harness(skills=(SKILL,)))
    assert (found.code, found.severity) == ("skill", Severity.WARNING)


def test_what_is_rejected_keeps_its_findings() -> None:
    kept, rejected = accepted([add("a"), add("a"), say("")], harness())
    assert [edit.sha256 for edit in kept] == [add("a").sha256]
    assert [findings[0].code for _, findings in rejected] == ["repeated", "empty"]
