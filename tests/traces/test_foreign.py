"""Documents of other formats: in as events, out again value for value."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.traces import foreign
from orchestrator.traces.atif import Sampled, Subject, to_atif
from orchestrator.traces.exact import dump, parse

TEXT = st.text(max_size=20)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
SCALAR = TEXT | st.integers() | FLOAT | st.booleans() | st.none()
EXTRA = st.dictionaries(TEXT, SCALAR | st.lists(SCALAR, max_size=2), max_size=2)
PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
MESSAGE = TEXT | st.lists(PART, max_size=2)
CALL = st.fixed_dictionaries(
    {"tool_call_id": TEXT, "function_name": TEXT, "arguments": EXTRA}, optional={"extra": EXTRA}
)
RESULT = st.fixed_dictionaries(
    {}, optional={"source_call_id": TEXT | st.none(), "content": MESSAGE | st.none()}
)
STEP = st.fixed_dictionaries(
    {"source": st.sampled_from(["system", "user", "agent"]), "message": MESSAGE},
    optional={
        "step_id": st.integers(1, 9),
        "timestamp": TEXT | st.none(),
        "tool_calls": st.lists(CALL, max_size=2) | st.none(),
        "observation": st.none() | st.fixed_dictionaries({"results": st.lists(RESULT, max_size=2)}),
        "reasoning_content": TEXT,
        "metrics": EXTRA,
        "extra": EXTRA | st.none(),
    },
)
ATIF = st.fixed_dictionaries(
    {
        "schema_version": st.sampled_from(["ATIF-v1.0", "ATIF-v1.6", "ATIF-v1.8"]),
        "agent": st.fixed_dictionaries({"name": TEXT, "version": TEXT}),
        "steps": st.lists(STEP, min_size=1, max_size=4),
    },
    optional={"session_id": TEXT, "notes": TEXT, "final_metrics": EXTRA, "extra": EXTRA},
)
TURN = st.dictionaries(
    st.sampled_from(["node_id", "prompt_token_ids", "loss_mask", "metadata", "other"]),
    TEXT | st.lists(st.integers(), max_size=3) | EXTRA | st.none(),
)
TRACE = st.fixed_dictionaries(
    {"turns": st.lists(TURN, min_size=1, max_size=3)}, optional={"schema_version": st.just(1)}
)


@given(document=ATIF)
def test_atif_comes_back_value_for_value(document: dict[str, Any]) -> None:
    read = parse(dump(document))
    events = foreign.from_atif(read, rollout="r")
    assert foreign.format_of(events) == foreign.ATIF
    assert json.loads(dump(foreign.to_atif_again(events))) == json.loads(dump(read))
    assert len({event["id"] for event in events}) == len(events)


@given(traces=st.lists(TRACE, min_size=1, max_size=3))
def test_training_traces_come_back_value_for_value(traces: list[dict[str, Any]]) -> None:
    events: list[dict[str, Any]] = []
    for number, trace in enumerate(traces):
        read = parse(dump(trace))
        events += foreign.from_training_trace(
            read, rollout="r", prefix=str(number), first=len(events)
        )
    again = foreign.to_training_traces_again(events)
    assert [json.loads(dump(trace)) for trace in again] == traces
    assert [event["seq"].token for event in events] == [str(i) for i in range(len(events))]


def test_calls_and_results_hang_below_their_step() -> None:
    call = {"tool_call_id": "c", "function_name": "ls", "arguments": {"path": "/"}}
    results = [{"source_call_id": "c", "content": "a"}, {"content": "b"}]
    step = {
        "source": "agent",
        "message": "look",
        "tool_calls": [call],
        "observation": {"results": results},
    }
    events = foreign.from_atif({"steps": [step]}, rollout="r")
    told = [(e["kind"], e.get("parent"), e.get("name"), e.get("content")) for e in events]
    assert told == [
        ("trajectory", None, "", None),
        ("model_call", None, None, "look"),
        ("tool_call", "trajectory/1", "ls", {"path": "/"}),
        ("observation", "trajectory/1/call-1", None, "a"),
        ("observation", "trajectory/1", None, "b"),
    ]


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, "steps"),
        ({"steps": [1]}, "steps[0]"),
        ({"steps": [{"source": "robot", "message": ""}]}, "steps[0].source"),
        ({"steps": [{"source": "agent", "tool_calls": {}}]}, "steps[0].tool_calls"),
        ({"steps": [{"source": "agent", "observation": []}]}, "steps[0].observation"),
    ],
)
def test_what_is_no_trajectory_is_refused_by_place(document: dict[str, Any], place: str) -> None:
    with pytest.raises(foreign.NotReadable, match=place.replace("[", r"\[")):
        foreign.from_atif(document, rollout="r")


# Our own traces as ATIF


def log(*events: tuple[str, dict[str, Any]]) -> list[Any]:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return [
        SimpleNamespace(seq=seq, kind=kind, payload=payload, at=at)
        for seq, (kind, payload) in enumerate(events, start=1)
    ]


SUBJECT = Subject(name="r1", model="m", harness="h_1", tokens_in=5, tokens_out=3)
STARTED = (
    "rollout.started",
    {
        "prompt": "count the lines",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "2+2"},
            {"role": "assistant", "content": "4"},
        ],
    },
)
ACTION = {"step": 1, "text": "$ ls", "form": "command", "command": "ls", "tokens": 2}
OUTPUT = {
    "step": 1,
    "segments": [{"kind": "env_output", "text": "a\n"}, {"kind": "scaffold", "text": "(exit 0)"}],
    "exit_status": 0,
}


def test_actions_carry_their_outputs_and_demonstrations_are_marked() -> None:
    ended = ("rollout.ended", {"state": "scored", "score": 1.0})
    document = to_atif(log(STARTED, ("action", ACTION), ("observation", OUTPUT), ended), SUBJECT)
    steps = document["steps"]
    assert [(s["source"], s["message"]) for s in steps] == [
        ("system", "be brief"),
        ("user", "2+2"),
        ("agent", "4"),
        ("user", "count the lines"),
        ("agent", "$ ls"),
    ]
    assert [s["step_id"] for s in steps] == [1, 2, 3, 4, 5]
    assert [bool(s.get("is_copied_context")) for s in steps] == [False, True, True, False, False]
    assert steps[4]["tool_calls"] == [
        {"tool_call_id": "call-2", "function_name": "command", "arguments": {"command": "ls"}}
    ]
    assert steps[4]["observation"]["results"] == [
        {"source_call_id": "call-2", "content": "a\n(exit 0)"}
    ]
    assert document["extra"]["switchback"]["ended"] == {"state": "scored", "score": 1.0}


def test_only_the_attempt_that_counts_is_told() -> None:
    again = ("rollout.restarted", {"attempt": 2})
    document = to_atif(log(STARTED, ("action", ACTION), again, STARTED), SUBJECT)
    assert [s["message"] for s in document["steps"]].count("$ ls") == 0
    assert to_atif([], SUBJECT)["steps"][0]["source"] == "system"


def test_token_ids_go_with_actions_only_where_every_length_fits() -> None:
    events = log(STARTED, ("action", ACTION), ("observation", OUTPUT))
    fits = to_atif(events, SUBJECT, [Sampled([7, 8], [-0.5, 0.0])])
    assert fits["steps"][-1]["metrics"] == {
        "completion_tokens": 2,
        "completion_token_ids": [7, 8],
        "logprobs": [-0.5, 0.0],
    }
    other = to_atif(events, SUBJECT, [Sampled([7], [-0.5])])
    assert other["steps"][-1]["metrics"] == {"completion_tokens": 2}


def test_an_output_before_any_action_is_told_to_the_agent() -> None:
    document = to_atif(log(("observation", OUTPUT)), SUBJECT)
    assert [(s["source"], s["message"]) for s in document["steps"]] == [("user", "a\n(exit 0)")]
