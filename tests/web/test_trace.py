from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.web.text import PREVIEW_CHARS
from orchestrator.web.trace import build_trace
from orchestrator.web.trace_tokens import heat, token_spans
from tests.web.build import ACTION

AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class FakeEvent:
    seq: int
    kind: str
    payload: Any
    at: datetime = AT


def test_events_before_a_restart_are_an_attempt_of_their_own() -> None:
    events = [
        FakeEvent(1, "rollout.started", {"attempt": 1, "prompt": "p"}),
        FakeEvent(2, "action", ACTION),
        FakeEvent(3, "rollout.restarted", {"attempt": 2, "reason": "the worker was killed"}),
        FakeEvent(4, "rollout.started", {"attempt": 2, "prompt": "p"}),
    ]
    first, second = build_trace(events)
    assert (first.number, first.cut_reason) == (1, "the worker was killed")
    assert [card.seq for card in first.cards] == [1, 2]
    assert (second.number, second.cut_reason) == (2, "")
    assert [card.seq for card in second.cards] == [4]


def test_an_unknown_kind_and_a_payload_that_is_no_object_become_cards() -> None:
    [attempt] = build_trace([FakeEvent(1, "novel", {"x": 1}), FakeEvent(2, "action", "text")])
    assert [card.kind for card in attempt.cards] == ["unknown", "action"]


def test_a_payload_of_the_wrong_shape_does_not_break_the_page() -> None:
    odd: list[Any] = [
        None,
        3,
        [],
        {"segments": 7},
        {"segments": [None, {"text": None}]},
        {"value": "x"},
    ]
    kinds = ["rollout.started", "action", "observation", "verdict", "rollout.ended"]
    for kind in kinds:
        for payload in odd:
            assert build_trace([FakeEvent(1, kind, payload)])[0].cards


def test_segments_say_what_is_trained() -> None:
    payload = {
        "segments": [
            {"kind": "env_output", "text": "3\n"},
            {"kind": "warning", "text": "two steps left"},
            {"kind": "scaffold", "text": "[exit status 0]"},
        ],
        "exit_status": 2,
    }
    [attempt] = build_trace([FakeEvent(1, "observation", payload)])
    [card] = attempt.cards
    assert [segment.is_trained for segment in card.segments] == [True, False, False]
    assert card.outline == "exit 2"
    assert card.meta == "1 line"


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    payload = {"segments": [{"kind": "env_output", "text": "x" * (PREVIEW_CHARS + 10)}]}
    [attempt] = build_trace([FakeEvent(1, "observation", payload)])
    assert attempt.cards[0].segments[0].hidden_chars == 10


@dataclass
class FakeRow:
    ids: Any
    kinds: Any
    logprobs: Any


def test_log_probabilities_fall_on_the_action_tokens_in_order() -> None:
    row = FakeRow(
        list(range(100, 110)),
        [["context", 4], ["action", 2], ["env_output", 3], ["action", 1]],
        [-0.1, -3.0, -0.2],
    )
    spans = token_spans(row)
    cells = [cell for span in spans for cell in span.cells]
    assert [(cell.place, cell.id, cell.logprob) for cell in cells] == [
        (4, 104, -0.1),
        (5, 105, -3.0),
        (9, 109, -0.2),
    ]
    assert spans[1].mean_logprob == (-0.1 - 3.0) / 2
    assert [span.is_trained for span in spans] == [False, True, True, True]


def test_surprise_is_warmer() -> None:
    assert [heat(v) for v in (None, -0.05, -0.3, -0.7, -1.5, -3.0, -9.0)] == [0, 0, 1, 2, 3, 4, 5]
