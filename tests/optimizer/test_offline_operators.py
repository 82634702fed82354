from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from optimizer.edits import Edit, Op, apply_edit, apply_edits, conflict_groups
from optimizer.errors import SearchInvalid
from optimizer.harness import Harness, Pick
from optimizer.lint import accepted
from optimizer.operators import (
    OFFLINE,
    Evidence,
    Judgement,
    PublicCriterion,
    Step,
    Trace,
    propose_offline,
)
from optimizer.operators.actions import error_of, pattern, symbol
from optimizer.operators.contrast import lessons
from optimizer.operators.merge import crossings
from optimizer.skills import parse_skill
from tests.optimizer.build import SKILL, add, demonstration, harness, put, say

Talk = Sequence[tuple[str, str]]
"""Actions with what they brought."""


def trace(task: str, prompt: str, talk: Talk, stratum: str = "", **changes: Any) -> Trace:
    messages = [{"role": "user", "content": prompt}]
    for action, output in talk:
        messages += [{"role": "assistant", "content": action}, {"role": "user", "content": output}]
    return Trace(task, messages[:-1], stratum, **changes)


def counts(task: str, file: str, n: int, **changes: Any) -> Trace:
    """A task of counting lines, done well."""
    talk = [(f"wc -l {file}", f"{n} {file}"), (f"answer: {n}", "")]
    return trace(task, f"{file}: number of lines", talk, "count", **changes)


def heads(task: str, file: str, words: str, **changes: Any) -> Trace:
    talk = [(f"head -n 1 {file}", words), (f"answer: {words}", "")]
    return trace(task, f"{file}: first line", talk, "head", **changes)


def chats(task: str, prompt: str, **changes: Any) -> Trace:
    """An attempt that talks and fails."""
    said = f"Let me think.\nThe file is {prompt.split(':')[0]}, I guess 7."
    return trace(task, prompt, [(said, "")], score=0.0, **changes)


PASSED = [
    counts("t1", "a.txt", 11, score=1.0),
    counts("t2", "b.txt", 5, score=1.0),
    counts("t3", "c.log", 23, score=0.95),
    heads("t4", "a.txt", "stone rose", score=1.0),
    heads("t5", "d.txt", "green sea", score=1.0),
]
FAILED = [chats("t6", "e.txt: number of lines"), chats("t7", "f.txt: first line")]
EVIDENCE = Evidence(attempts=[*PASSED, *FAILED])


def told(evidence: Evidence) -> list[str]:
    return [lesson.text for lesson in lessons(evidence)]


@pytest.mark.parametrize(
    ("action", "kind", "general"),
    [
        ("wc -l a.txt", "wc", "wc -l …"),
        ("grep -c ERROR b.log | sort", "grep | sort", "grep -c … | sort"),
        ("head -n 1 'my file.txt'", "head", "head -n 1 …"),
        ("get_invoice id=INV-939", "get_invoice", "get_invoice …"),
        ("answer: 11", "answer:", "answer: …"),
        ("Answer: the sea", "answer:", "Answer: …"),
        ("UPDATE orders SET state='paid' WHERE id=3", "UPDATE", "UPDATE … SET … WHERE …"),
        ("Oslo", "", ""),
        ("I think that it is 7.", "", ""),
        ("", "", ""),
    ],
)
def test_an_action_is_told_in_general_terms(action: str, kind: str, general: str) -> None:
    attempt = trace("t", "b.log: count ERROR", [(action, "")])
    (step,) = attempt.moves
    assert (symbol(step), pattern(step, attempt, 0)) == (kind, general)


def test_a_call_is_told_by_its_tool_and_parameters() -> None:
    step = Step("{}", tool="get_invoice", arguments={"id": "INV-939"})
    attempt = replace(counts("t", "a.txt", 1), steps=(step,))
    assert (symbol(step), pattern(step, attempt, 0)) == ("get_invoice", "get_invoice id=…")


def test_errors_are_told_without_what_is_particular() -> None:
    output = "cat: notes.txt: No such file or directory"
    assert error_of(Step("cat notes.txt", output)) == "cat: … No such file or directory"
    assert error_of(Step("x", error="tool 'find' is unknown")) == "tool … is unknown"
    assert error_of(Step("cat a.log", "ERROR in line one\n" * 40)) == ""
    assert error_of(Step("wc a", "11 a.txt")) == ""


def test_lessons_say_what_passes_do_and_failures_do_not() -> None:
    assert told(EVIDENCE)[:2] == [
        "Where the task speaks of “number of lines”: `wc -l …`, then `answer: …`.",
        "Where the task speaks of “first line”: `head -n 1 …`, then `answer: …`.",
    ]
    assert "End with `answer: `, followed by the result alone." in told(EVIDENCE)
    assert "The last action is one line." in told(EVIDENCE)


def test_lessons_hold_nothing_of_one_task() -> None:
    text = " ".join(told(EVIDENCE))
    assert not any(word in text for word in ("a.txt", "11", "23", "stone", "sea", "log"))


def test_a_course_that_most_passes_took_is_told_once() -> None:
    passed = [counts(f"t{i}", f"f{i}.txt", i, score=1.0) for i in range(4)]
    evidence = Evidence(attempts=[*passed, *FAILED])
    first = "Most tasks that worked took this course: `wc -l …`, then `answer: …`."
    assert told(evidence)[0] == first
    assert not any("`wc`" in text for text in told(evidence))


def test_what_failures_do_is_to_be_avoided() -> None:
    failed = [
        trace(f"x{i}", f"f{i}: size", [("rm -rf tmp", ""), ("answer: 1", "")], score=0.0)
        for i in range(3)
    ]
    evidence = Evidence(attempts=[*PASSED, *failed])
    assert "Avoid `rm`: it was seen where tasks failed and rarely otherwise." in told(evidence)


def test_what_led_on_after_an_error_is_told() -> None:
    passed = [
        trace(
            f"t{i}",
            f"{name}: number of lines",
            [
                (f"wc -l {name}", f"wc: {name}: No such file or directory"),
                ("ls -a", "notes"),
                ("wc -l notes", f"{i} notes"),
                (f"answer: {i}", ""),
            ],
            f"s{i}",
            score=1.0,
        )
        for i, name in enumerate(("a.txt", "b.txt", "c.txt"))
    ]
    lesson = "After “wc: … No such file or directory”, `ls -a` led on."
    assert lesson in told(Evidence(attempts=[*passed, *FAILED]))


def test_one_task_is_no_lesson_however_often_it_was_tried() -> None:
    again = [counts("t1", "a.txt", 11, score=1.0) for _ in range(5)]
    assert told(Evidence(attempts=[*again, *FAILED])) == []
    assert told(Evidence(attempts=FAILED)) == []
    assert told(Evidence()) == []


def test_transcripts_of_authors_count_as_passes() -> None:
    written = [replace(item, score=None) for item in PASSED]
    assert told(Evidence(references=written, attempts=FAILED)) == told(EVIDENCE)


def test_more_of_the_same_evidence_gives_the_same_edits_with_more_support() -> None:
    more = replace(EVIDENCE, attempts=[*EVIDENCE.attempts, counts("t9", "z.txt", 4, score=1.0)])
    before = propose_offline(["contrast.lessons", "contrast.skill"], EVIDENCE, harness(), 0)
    after = propose_offline(["contrast.lessons", "contrast.skill"], more, harness(), 0)
    assert [edit.sha256 for edit in before] == [edit.sha256 for edit in after]
    assert sum(edit.support for edit in before) < sum(edit.support for edit in after)


def test_the_skill_is_valid_and_excludes_the_block_of_the_same_lessons() -> None:
    skill, block = propose_offline(["contrast.skill"], EVIDENCE, harness(), 0)
    assert conflict_groups([skill, block]) == [(0, 1)]
    (made,) = apply_edit(harness(), skill).skills
    assert parse_skill(made.text(), "what-worked") == made
    assert "`wc -l …`" in made.body
    assert "`wc -l …`" in apply_edit(harness(), block).instructions
    assert skill.support == block.support == 5
    assert skill.sources == ()


def test_a_second_skill_has_another_name() -> None:
    taken = harness(skills=(replace(SKILL, name="what-worked"),))
    skill, _ = propose_offline(["contrast.skill"], EVIDENCE, taken, 0)
    assert json.loads(skill.content)["name"] == "what-worked-2"


# --- demonstrations


def test_the_nearest_are_picked_from_a_pool_of_all() -> None:
    pool = propose_offline(["demonstrations.nearest"], EVIDENCE, harness(), 0)
    assert conflict_groups(pool) == [(0, 1)]
    two, four = (apply_edit(harness(), edit) for edit in pool)
    assert (two.picking.k, four.picking.k, two.picking.pick) == (2, 4, Pick.NEAREST)
    assert len(two.demonstrations) == 5
    chosen = two.demonstrations_for("x.txt: number of lines", key="t1")
    assert [item.source for item in chosen] != []
    assert "t1" not in {item.source for item in chosen}
    assert pool[0].sources == ()
    kept, _ = accepted(pool, harness())
    assert kept == pool


def test_a_pool_stands_beside_the_same_demonstrations_by_themselves() -> None:
    names = ["demonstrations.success", "demonstrations.nearest"]
    *shown, pool, _ = propose_offline(names, EVIDENCE, harness(), 0)
    result = apply_edits(harness(), [*shown, pool])
    chosen = result.demonstrations_for("y.txt: number of lines")
    assert len({json.dumps(item.messages) for item in chosen}) == len(chosen) == 2


def test_a_small_pool_is_none() -> None:
    small = Evidence(attempts=PASSED[:2])
    assert propose_offline(["demonstrations.nearest"], small, harness(), 0) == []


def test_demonstrations_are_backed_by_the_failures_of_their_stratum() -> None:
    failed = [replace(item, stratum="count") for item in FAILED]
    found = propose_offline(
        ["demonstrations.success"], Evidence(attempts=[*PASSED, *failed]), harness(), 0
    )
    support = {edit.sources[0]: edit.support for edit in found}
    assert support == {"t1": 3, "t2": 3, "t3": 3, "t4": 1, "t5": 1}


def test_another_attempt_at_a_task_is_another_demonstration() -> None:
    other = counts("t1", "a.txt", 11, score=1.0)
    other = replace(other, messages=[*other.messages[:1], {"role": "assistant", "content": "x"}])
    first = propose_offline(["demonstrations.success"], Evidence(attempts=PASSED), harness(), 0)
    second = propose_offline(["demonstrations.success"], Evidence(attempts=[other]), harness(), 0)
    apply_edits(harness(), [*first, *second])


def test_what_the_seed_demonstrates_is_not_proposed_again() -> None:
    seed = harness(demonstrations=(demonstration("t1", source="t1"),))
    found = propose_offline(["demonstrations.success"], EVIDENCE, seed, 0)
    assert "t1" not in {edit.sources[0] for edit in found}


# --- the seed itself


def test_each_part_of_the_seed_is_left_out_once() -> None:
    seed = harness(
        instructions="Do.\n\nDo it well.\n\n{actions}\n",
        demonstrations=(demonstration("a"), demonstration("b")),
        skills=(SKILL, replace(SKILL, name="other", body="One.\n\nTwo.\n")),
    )
    found = propose_offline(["ablation"], EVIDENCE, seed, 0)
    assert [(edit.component, edit.anchor) for edit in found] == [
        ("instructions.md", "Do."),
        ("instructions.md", "Do it well."),
        ("demonstrations.jsonl", "a"),
        ("demonstrations.jsonl", "b"),
        ("skills", "count-lines"),
        ("skills", "other"),
        ("skills/other/SKILL.md", "One."),
        ("skills/other/SKILL.md", "Two."),
    ]
    assert {edit.support for edit in found} == {7}
    kept, rejected = accepted(found, seed)
    assert (kept, rejected) == (found, [])
    without = apply_edits(seed, [group for group in found if group.component != "skills"])
    assert without.demonstrations == ()


def test_protected_parts_are_not_left_out() -> None:
    text = "Be brief.\n\n<!-- protected -->\nNever delete.\n\nNever send.\n<!-- /protected -->\n"
    found = propose_offline(["ablation"], EVIDENCE, harness(instructions=text), 0)
    assert [edit.anchor for edit in found] == ["Be brief."]


# --- rubric, sampling, merging


def judged(task: str, **values: bool) -> Trace:
    said = [Judgement(name, float(passed), is_passed=passed) for name, passed in values.items()]
    return replace(counts(task, "a.txt", 1), judgements=said, score=0.5)


CRITERIA = [
    PublicCriterion("units", "Amounts have their unit."),
    PublicCriterion("tone", "Blames the customer.", is_negative=True),
    PublicCriterion("fine", "Is polite."),
]


def test_a_checklist_names_the_public_criteria_that_fail() -> None:
    attempts = [
        judged("a", units=False, tone=False, fine=True, secret=False),
        judged("b", units=False, tone=False, fine=True, secret=False),
        judged("b", units=False, tone=True, fine=False, secret=False),
        judged("c", units=False, tone=True, fine=True, secret=False),
    ]
    long, short = propose_offline(
        ["checklist"], Evidence(attempts=attempts, criteria=CRITERIA), harness(), 0
    )
    assert long.content.split("\n") == [
        "Before the last action, check:",
        "- Amounts have their unit.",
        "- Avoid: Blames the customer.",
    ]
    assert "customer" not in short.content
    assert (long.support, short.support) == (3, 3)
    assert long.operator == "checklist.rubric_derived"
    assert conflict_groups([long, short]) == [(0, 1)]
    kept, _ = accepted([long, short], harness())
    assert kept == [long, short]
    assert propose_offline(["checklist"], Evidence(attempts=attempts), harness(), 0) == []


def test_sampling_is_one_factor_that_leaves_out_what_is_so_already() -> None:
    found = propose_offline(["sampling"], EVIDENCE, harness(), 0)
    assert conflict_groups(found) == [tuple(range(len(found)))]
    levels = [apply_edit(harness(), edit).sampling for edit in found]
    assert [level.temperature for level in levels[:4]] == [0.3, 0.7, 1.0, 1.0]
    assert [level.stop for level in levels] == [("\n",)] * len(levels)
    assert {edit.support for edit in found} == {2}
    assert conflict_groups([*found, put("sampling.top_p", 0.5)]) == [tuple(range(len(found) + 1))]


def test_a_longer_reply_is_tried_where_replies_were_cut() -> None:
    cut = replace(FAILED[0], steps=[Step("word " * 26)])
    (edit,) = [
        item
        for item in propose_offline(["sampling"], Evidence(attempts=[cut]), harness(), 0)
        if item.operator == "sampling.max_tokens"
    ]
    assert apply_edit(harness(), edit).sampling.max_tokens == 128


def test_two_rewrites_are_joined() -> None:
    a = say("Answer.\n\nOne line.", op=Op.SET, support=3)
    b = say("ANSWER.\n\nUse wc.", op=Op.SET, support=2)
    (edit,) = propose_offline(["merge"], Evidence(candidates=[(a,), (b, add("x"))]), harness(), 0)
    assert edit.content == "Answer.\n\nOne line.\n\nUse wc.\n"
    assert conflict_groups([a, b, edit]) == [(0, 1, 2)]
    assert propose_offline(["merge"], Evidence(candidates=[(a,)]), harness(), 0) == []


def test_children_have_each_component_from_one_parent() -> None:
    a = (say("A."), add("a"), put("sampling.temperature", 1))
    b = (say("B."), add("b"))
    children = crossings(a, b, count=4, seed=0)
    assert len(children) == len({frozenset(e.sha256 for e in child) for child in children}) > 1
    for child in children:
        apply_edits(harness(), child)
        assert {e.content for e in child if e.component == "instructions.md"} <= {"A.", "B."}
        assert len([e for e in child if e.component == "instructions.md"]) == 1
        assert set(child) not in (set(a), set(b))
    assert children == crossings(a, b, count=4, seed=0)
    assert crossings(a, a, count=2, seed=0) == []


# --- all of them


def seeds() -> list[Harness]:
    return [
        Harness(),
        harness(),
        harness(
            skills=(SKILL,),
            demonstrations=(demonstration("t1", source="t1"),),
            instructions="```\na\n\nb\n```\n\n{actions}\n",
        ),
    ]


@pytest.mark.parametrize("seed_harness", seeds())
def test_whatever_is_proposed_passes_the_linter_and_can_be_applied_together(
    seed_harness: Harness,
) -> None:
    proposed = propose_offline(list(OFFLINE), EVIDENCE, seed_harness, 0)
    kept, rejected = accepted(proposed, seed_harness)
    assert rejected == []
    assert len({edit.sha256 for edit in kept}) == len(kept) > 15
    groups = conflict_groups(kept)
    for pick in (0, -1):
        chosen: list[Edit] = [kept[members[pick]] for members in groups]
        result = apply_edits(seed_harness, chosen)
        assert Harness.from_components(result.components()) == result


def test_the_order_of_the_evidence_does_not_matter() -> None:
    turned = replace(EVIDENCE, attempts=list(reversed(EVIDENCE.attempts)))
    before = propose_offline(list(OFFLINE), EVIDENCE, harness(), 3)
    assert before == propose_offline(list(OFFLINE), turned, harness(), 3)


def test_without_evidence_only_the_seed_is_varied() -> None:
    found = propose_offline(list(OFFLINE), Evidence(), harness(), 0)
    assert {edit.operator.split(".")[0] for edit in found} == {
        "instructions",
        "habit",
        "ablation",
        "sampling",
    }


def test_every_operator_says_what_it_does() -> None:
    assert all(item.about.endswith(".") and len(item.about) < 100 for item in OFFLINE.values())
    with pytest.raises(SearchInvalid, match="no operator is called 'magic'; there are"):
        propose_offline(["magic"], EVIDENCE, harness(), 0)
