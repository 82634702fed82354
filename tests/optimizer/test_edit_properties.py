from __future__ import annotations

from random import Random

from hypothesis import given, settings

from optimizer.edits import (
    apply_edit,
    apply_edits,
    are_exclusive,
    conflict_groups,
    with_whole_anchor,
)
from optimizer.errors import EditInvalid
from optimizer.harness import Harness, export_zip, import_zip
from optimizer.lineage import apply_in_turn, blame, edits_between, parts_of, tidied, undo
from optimizer.paragraphs import joined, paragraphs, tidy
from tests.optimizer.arbitrary import body_of, edit_of, harness_of, seeds


@settings(max_examples=40)
@given(seeds)
def test_what_is_exported_is_imported_as_the_same_harness(seed: int) -> None:
    subject = harness_of(seed)
    again = import_zip(export_zip(subject))
    assert again == subject
    assert again.sha256 == subject.sha256
    assert again.messages("task") == subject.messages("task")


@settings(max_examples=40)
@given(seeds, seeds)
def test_an_edit_leaves_a_harness_that_reads_back_or_is_refused(seed: int, other: int) -> None:
    start = harness_of(seed)
    edit = edit_of(other, start)
    try:
        result = apply_edit(start, edit)
    except EditInvalid:
        return
    assert Harness.from_components(result.components()) == result
    frontmatter = {skill.name: (skill.description, skill.extra) for skill in start.skills}
    for skill in result.skills:
        if skill.name in frontmatter and edit.anchor != "description":
            assert (skill.description, skill.extra) == frontmatter[skill.name]


@settings(max_examples=40)
@given(seeds, seeds)
def test_an_edit_can_be_taken_back(seed: int, other: int) -> None:
    start = harness_of(seed)
    edit = edit_of(other, start)
    try:
        result, back = apply_edit(start, edit), undo(start, edit)
    except EditInvalid:
        return
    assert tidied(apply_in_turn(result, back)).sha256 == tidied(start).sha256


@settings(max_examples=40)
@given(seeds, seeds)
def test_a_difference_of_harnesses_is_edits(seed: int, other: int) -> None:
    before, after = harness_of(seed), harness_of(other)
    try:
        found = edits_between(before, after)
    except EditInvalid:
        assert extras(before) != extras(after)
        return
    assert tidied(apply_in_turn(before, found)).sha256 == tidied(after).sha256
    assert edits_between(after, after) == []


@settings(max_examples=25)
@given(seeds, seeds)
def test_edits_without_a_conflict_can_be_applied_together(seed: int, other: int) -> None:
    """Search switches any of them on; a set that cannot be applied would end it."""
    start = harness_of(seed)
    pool = {}
    for i in range(8):
        edit = with_whole_anchor(start, edit_of(other + i, start))
        try:
            apply_edit(start, edit)
        except EditInvalid:
            continue
        pool[edit.sha256] = edit
    free = conflict_groups(list(pool.values()))
    chosen = [list(pool.values())[members[0]] for members in free]
    result = apply_edits(start, chosen)
    assert Harness.from_components(result.components()) == result
    lines = blame(start, chosen)
    assert parts_of(result) == {key: [line.text for line in found] for key, found in lines.items()}
    made = {line.edit for found in lines.values() for line in found} - {None}
    assert made <= {edit.sha256 for edit in chosen}


def extras(harness: Harness) -> dict[str, object]:
    """What no edit can change."""
    return {skill.name: skill.extra for skill in harness.skills}


@settings(max_examples=40)
@given(seeds)
def test_paragraphs_are_a_normal_form(seed: int) -> None:
    text = body_of(Random(seed)) + "\n" + body_of(Random(seed + 1))
    blocks = paragraphs(text)
    assert paragraphs(joined(blocks)) == blocks
    assert tidy(tidy(text)) == tidy(text)
    assert all(block.strip() for block in blocks)


@settings(max_examples=40)
@given(seeds, seeds)
def test_exclusion_has_no_order(seed: int, other: int) -> None:
    start = harness_of(seed)
    a, b = edit_of(other, start), edit_of(other + 1, start)
    assert are_exclusive(a, b) == are_exclusive(b, a)
