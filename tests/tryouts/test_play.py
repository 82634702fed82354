"""What is left of a log after resets, undone steps and losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.environments.kinds import KINDS
from orchestrator.environments.kinds.acting import interface_of
from orchestrator.tryouts.grading import breakdown
from orchestrator.tryouts.play import differences, digests_of, fold, sentence
from orchestrator.tryouts.wording import text_of
from rubrics.types import Criterion, RubricSpec, Scope, State, Step, Transcript


@dataclass
class Logged:
    seq: int
    kind: str
    payload: dict[str, Any]
    at: Any = None


def log(*items: tuple[str, dict[str, Any]]) -> list[Logged]:
    return [Logged(seq, f"tryout.{kind}", payload) for seq, (kind, payload) in enumerate(items, 1)]


def reset(**params: Any) -> tuple[str, dict[str, Any]]:
    return "reset", {"step": 0, "params": params}


def acted(number: int, text: str) -> tuple[str, dict[str, Any]]:
    return "action", {"step": number, "action": {"command": text}}


def saw(number: int, done: bool = False) -> tuple[str, dict[str, Any]]:
    return "observation", {"step": number, "done": done, "reward": None}


def replayed(steps: int, **changed: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "replayed", {"steps": steps, "undone": 1, "observations": changed, "differences": []}


def test_a_reset_begins_a_play_of_its_own() -> None:
    play = fold(log(reset(seed=1), acted(1, "a"), saw(1), reset(seed=2)))
    assert (play.params, play.steps, play.last_seq) == ({"seed": 2}, [], 4)


def test_undone_steps_are_gone_and_changed_observations_replaced() -> None:
    new = {"step": 1, "done": False, "reward": 0.5}
    events = log(
        reset(), acted(1, "a"), saw(1), acted(2, "b"), saw(2, done=True), replayed(1, **{"1": new})
    )
    play = fold(events)
    assert [s.action["command"] for s in play.steps] == ["a"]
    assert play.steps[0].observation == new
    assert not play.is_over


def test_an_action_without_an_answer_is_not_part_of_what_is_played_again() -> None:
    play = fold(log(reset(), acted(1, "a"), saw(1), acted(2, "b"), ("lost", {"message": "gone"})))
    assert [s.action["command"] for s in play.steps] == ["a"]
    assert play.notes[-1].kind == "tryout.lost"


def test_a_refused_action_leaves_a_note_and_no_step() -> None:
    refused = ("refused", {"command": "step", "action": {}, "reason": "no"})
    play = fold(log(reset(), acted(1, "a"), refused))
    assert play.steps == []
    assert [note.after for note in play.notes] == [0]


def test_a_failed_step_ends_what_can_be_done_until_it_is_undone() -> None:
    failed = ("failed", {"step": 1, "message": "broke"})
    play = fold(log(reset(), acted(1, "a"), failed))
    assert play.is_over and not play.is_done
    assert not fold(log(reset(), acted(1, "a"), failed, replayed(0))).is_over


@given(st.lists(st.sampled_from(["act", "undo", "reset", "lose"]), max_size=30))
def test_the_steps_of_a_play_are_numbered_from_one(what: list[str]) -> None:
    items, n = [reset()], 0
    for word in what:
        if word == "act":
            n += 1
            items += [acted(n, word), saw(n)]
        elif word == "reset":
            n = 0
            items.append(reset())
        elif word == "undo" and n:
            n -= 1
            items.append(replayed(n))
        elif word == "lose":
            items += [acted(n + 1, word), ("lost", {"message": ""})]
    play = fold(log(*items))
    assert [step.number for step in play.steps] == list(range(1, n + 1))
    assert all(note.after <= n for note in play.notes)


def test_a_difference_is_found_field_by_field() -> None:
    before = digests_of({"text": "a", "at": 1}, reward=None, done=False)
    after = digests_of({"text": "a", "at": 2, "new": 0}, reward=1.0, done=False)
    assert differences(before, before) == []
    assert differences(before, after) == ["at", "new", "reward"]
    said = sentence([{"step": 2, "fields": ["at"]}, {"step": 3, "fields": ["at"]}])
    assert "at step 2" in said and "not deterministic" in said and "1 more" in said
    assert sentence([]) == ""


# --- an agent's words ----------------------------------------------------------------------------


def test_actions_are_written_as_agents_of_their_kind_write_them() -> None:
    terminal = interface_of(KINDS["terminal"], None)
    assert text_of(terminal, {"command": "wc -l a.txt"}) == "wc -l a.txt"
    assert text_of(terminal, {"answer": "3"}) == "answer: 3"
    assert text_of(terminal, {"command": "ls\npwd"}) is None
    assert text_of(terminal, {"command": "answer: 3"}) is None
    foreign = interface_of(KINDS["url"], {"properties": {"move": {"type": "string"}}})
    assert text_of(foreign, {"move": "up"}) == '{"move": "up"}'
    tools = interface_of(
        KINDS["url"],
        {"properties": {"type": {"const": "call_tool"}, "tool_name": {"type": "string"}}},
        [{"name": "find", "input_schema": {"properties": {"id": {"type": "integer"}}}}],
    )
    call = {"type": "call_tool", "tool_name": "find", "arguments": {"id": 4}}
    assert text_of(tools, call) == "find id=4"
    nested = {**call, "arguments": {"id": [4]}}
    assert text_of(tools, nested) == 'find {"id": [4]}'
    sql = interface_of(KINDS["sql"], None)
    assert text_of(sql, {"done": True}) == "done"


@given(st.dictionaries(st.sampled_from(["command", "answer", "other"]), st.text(), max_size=2))
def test_a_text_is_only_given_if_it_is_read_back(action: dict[str, str]) -> None:
    for kind in ("terminal", "url"):
        interface = interface_of(KINDS[kind], None)
        text = text_of(interface, action)
        assert text is None or interface.read(text) == action


# --- the rubric before the end -------------------------------------------------------------------


def criterion(name: str, kind: str, **fields: Any) -> Criterion:
    return Criterion(id=name, kind=kind, **fields)


NO_RM = criterion(
    "no-rm",
    "forbidden_command",
    params={"patterns": ["rm"]},
    scope=Scope.TRAJECTORY,
    negative=True,
    weight=1,
)
REWARD = criterion("reward", "environment_reward", gate=True)
TRANSCRIPT = Transcript(steps=(Step(index=1, seq=2, action="rm a", command="rm a"),), reward=1.0)


def test_what_is_known_before_the_end_is_said_and_the_rest_is_pending() -> None:
    spec = RubricSpec(criteria=(NO_RM, REWARD))
    verdicts, score = breakdown(spec, TRANSCRIPT, is_over=False)
    assert [(v.state, v.value) for v in verdicts] == [(State.SCORED, 1.0), (State.PENDING, None)]
    assert score.state is State.PENDING
    verdicts, score = breakdown(spec, TRANSCRIPT, is_over=True)
    assert [v.state for v in verdicts] == [State.SCORED, State.SCORED]
    assert score.state is State.SCORED


def test_what_stands_behind_a_gate_waits_for_it() -> None:
    spec = RubricSpec(criteria=(REWARD, NO_RM))
    verdicts, _ = breakdown(spec, TRANSCRIPT, is_over=False)
    assert [(v.criterion, v.state) for v in verdicts] == [
        ("reward", State.PENDING),
        ("no-rm", State.PENDING),
    ]
    assert verdicts[1].reason == "waits for reward"
