"""How a request for a skill is told from an action, and what it is answered with. Pure."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.harness import Harness
from optimizer.skills import Skill
from orchestrator.agents.types import Completion, FunctionCall
from orchestrator.environments.actions import Malformed
from orchestrator.environments.kinds.acting import Interface, Tool, ToolInterface
from orchestrator.runs.acting import Said
from orchestrator.runs.payloads import KEPT_CHARS
from orchestrator.runs.skills import MAX_LOADS, Asked, Loaded, Shelf, turn_of

HARNESS = Harness(
    skills=(
        Skill("count-lines", "Counts lines. Use when asked how many.", "Use wc -l.\n"),
        Skill("dates", "Reads dates."),
    ),
    files={
        "skills/count-lines/references/wc.md": "wc counts.\n",
        "skills/count-lines/evals/triggers.json": "[]",
    },
)


class Words:
    """A kind whose every reply is an action."""

    def action_of(self, reply: str) -> dict[str, str]:
        return {"command": reply}


def shelf(harness: Harness = HARNESS, *, calls: bool = False, taken: Collection[str] = ()) -> Shelf:
    return Shelf(harness, calls=calls, taken=taken)


def said(text: str = "", *calls: tuple[str, str]) -> Completion:
    made = tuple(FunctionCall(f"c{i}", *call) for i, call in enumerate(calls))
    return Completion(text, "stop", 10, 5, 0.5, calls=made)


@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        ("load_skill: count-lines", Asked("count-lines")),
        ("  load_skill count-lines\n", Asked("count-lines")),
        ("`load_skill: count-lines`", Asked("count-lines")),
        ("Load_Skill(count-lines)", Asked("count-lines")),
        ("```\nload_skill: dates\n```", Asked("dates")),
        ('load_skill(name="count-lines", file="references/wc.md")', Asked("count-lines", "wc.md")),
        ('load_skill {"name": "dates"}', Asked("dates")),
        ("load_skill: count-lines references/wc.md", Asked("count-lines", "wc.md")),
        ("load_skill: count-lines/references/wc.md", Asked("count-lines", "wc.md")),
        ("load_skill: skills/count-lines/SKILL.md", Asked("count-lines")),
        ("I need it first.\n\nload_skill: dates", Asked("dates")),
        ("load_skill: nobody", Asked("nobody")),
        ("load_skill:", Asked("")),
    ],
)
def test_a_request_is_read(reply: str, asked: Asked) -> None:
    assert shelf().asked_in_text(reply) == asked


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "ls",
        "skill: count-lines",
        "cat load_skill: count-lines",
        "load_skills: count-lines",
        "answer: 3",
        "These are functions:\nload_skill: reads a file\nsave_skill: writes one",
    ],
)
def test_an_action_is_no_request(reply: str) -> None:
    assert shelf().asked_in_text(reply) is None


@given(st.text(max_size=60))
def test_without_skills_no_reply_is_a_request(reply: str) -> None:
    bare = shelf(Harness(instructions="Be brief."))
    assert bare.asked_in_text(f"load_skill: {reply}") is None
    assert bare.asked_in_call(FunctionCall("1", "load_skill", "{}")) is None
    assert (bare.loading, bare.functions) == ("", [])


@given(st.text(max_size=60))
def test_no_request_raises(words: str) -> None:
    (turn,) = turn_of(said(f"load_skill: {words}"), Interface(Words()), shelf())
    assert isinstance(turn, Loaded | Said)
    (turn,) = turn_of(said("", ("load_skill", words)), ToolInterface([]), shelf(calls=True))
    assert isinstance(turn, Loaded)


def test_a_skill_is_answered_with_its_body_and_the_names_of_its_files() -> None:
    (turn,) = turn_of(said("load_skill: count-lines"), Interface(Words()), shelf())
    assert isinstance(turn, Loaded)
    assert turn.is_found
    assert turn.content == (
        "Use wc -l.\n\n(Files of this skill, by the reply `load_skill: count-lines "
        "references/FILE`: references/wc.md)"
    )


def test_a_file_of_a_skill_is_loaded_and_its_tests_are_not() -> None:
    mine = shelf()
    reader = Interface(Words())
    (found,) = turn_of(said("load_skill: count-lines references/wc.md"), reader, mine)
    assert isinstance(found, Loaded)
    assert (found.is_found, found.content) == (True, "wc counts.\n")
    (hidden,) = turn_of(said("load_skill: count-lines evals/triggers.json"), reader, mine)
    assert isinstance(hidden, Loaded)
    assert not hidden.is_found
    assert hidden.content == (
        "(skill count-lines has no file 'evals/triggers.json'. Its files: references/wc.md)"
    )


def test_an_unknown_name_is_answered_with_the_names() -> None:
    (turn,) = turn_of(said("load_skill: nobody"), Interface(Words()), shelf())
    assert isinstance(turn, Loaded)
    assert turn.content == "(there is no skill 'nobody'. Skills: count-lines, dates)"
    call = said("", ("load_skill", '{"name": 3}'))
    (turn,) = turn_of(call, ToolInterface([]), shelf(calls=True))
    assert isinstance(turn, Loaded)
    assert "name and file are texts. Skills: count-lines, dates" in turn.content


def test_ours_gets_another_name_where_the_environment_has_one() -> None:
    taken = ("load_skill", "load_skill_2", "price")
    mine = shelf(calls=True, taken=taken)
    assert [function.name for function in mine.functions] == ["load_skill_3"]
    assert "load_skill_3" in mine.loading
    tools = ToolInterface([Tool("load_skill", "The environment's own.")])
    turn = turn_of(
        said("", ("load_skill", '{"name": "dates"}'), ("load_skill_3", '{"name": "dates"}')),
        tools,
        mine,
    )
    assert [type(each) for each in turn] == [Said, Loaded]
    assert shelf(taken=taken).asked_in_text("load_skill: dates") is None
    assert shelf(taken=taken).asked_in_text("load_skill_3: dates") == Asked("dates")


def test_functions_name_the_skills_and_offer_files_where_there_are_any() -> None:
    (function,) = shelf(calls=True).functions
    assert function.parameters["properties"]["name"]["enum"] == ["count-lines", "dates"]
    assert "file" in function.parameters["properties"]
    (bare,) = shelf(Harness(skills=HARNESS.skills), calls=True).functions
    assert "file" not in bare.parameters["properties"]
    assert shelf(calls=False).functions == []


def test_a_rollout_that_only_reads_is_told_to_act() -> None:
    mine, reader = shelf(), Interface(Words())
    for _ in range(MAX_LOADS):
        (turn,) = turn_of(said("load_skill: nobody"), reader, mine)
        assert isinstance(turn, Loaded)
    (turn,) = turn_of(said("load_skill: dates"), reader, mine)
    assert isinstance(turn, Said)
    assert isinstance(turn.action, Malformed)
    assert f"asked for {MAX_LOADS} times" in turn.action.reason
    # An action goes through as ever.
    (turn,) = turn_of(said("ls"), reader, mine)
    assert isinstance(turn, Said)
    assert turn.action == {"command": "ls"}


def test_a_long_text_is_cut_for_the_model_where_the_log_cuts_it() -> None:
    long = Harness(skills=(Skill("long", "Long.", "x" * (KEPT_CHARS + 5)),))
    (turn,) = turn_of(said("load_skill: long"), Interface(Words()), shelf(long))
    assert isinstance(turn, Loaded)
    assert turn.content.endswith(f"\n[shortened: {KEPT_CHARS + 5} characters in all]")
