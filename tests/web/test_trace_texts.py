"""Terminal output, code, cells, cut cards, media and the skeleton: the pure parts of a trace."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.web.code import code, code_tokens, language_of, with_fences
from orchestrator.web.terminal import terminal, without_sequences
from orchestrator.web.text import cell, visible, with_code
from orchestrator.web.trace import build_card, raw_card
from orchestrator.web.trace_cap import LINES, capped
from orchestrator.web.trace_index import (
    LETTERS,
    MOST_EVENTS,
    OTHER,
    RESTART,
    IndexRow,
    TraceIndex,
    read_seqs,
    size_letter,
)
from orchestrator.web.trace_media import split_media

ODD = st.text(st.sampled_from("\x1b[]();:0123456789mKHhl\x07\\\x9b<&>'\" ab\r\n\u202e\ud800"))


@dataclass
class FakeEvent:
    kind: str
    payload: Any
    seq: int = 1
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


def bare(html: str) -> str:
    return re.sub(r"</?span[^>]*>", "", html)


# --- terminals ---


def test_colours_are_classes_and_other_sequences_are_left_out() -> None:
    shown = terminal("\x1b[1;31mFAILED\x1b[0m 3 tests\r\x1b[2K100%\x1b]0;new title\x07 end")
    assert shown == '<span class="t-bold t-f1">FAILED</span> 3 tests\n100% end'


def test_a_hyperlink_keeps_its_words_alone() -> None:
    assert terminal("\x1b]8;;http://192.0.2.1/\x07link\x1b]8;;\x07") == "link"


@pytest.mark.parametrize(
    ("sgr", "classes"),
    [
        ("38;5;196", "t-f1"),
        ("38;2;0;200;0", "t-f2"),
        ("38:5:21", "t-f4"),
        ("97;41", "t-b1"),
        ("30;40", "t-b0"),
        ("7", "t-b7"),
        ("7;34", "t-b4"),
        ("38;5;250", "t-f7"),
        ("4;3;2", "t-dim t-italic t-under"),
    ],
)
def test_every_way_to_name_a_colour_is_one_of_eight(sgr: str, classes: str) -> None:
    assert terminal(f"\x1b[{sgr}mx\x1b[m") == f'<span class="{classes}">x</span>'


def test_what_a_terminal_would_hide_is_shown() -> None:
    assert "secret" in terminal("\x1b[8msecret\x1b[0m")
    assert "the rest" in terminal("\x1b]0;title without an end, and the rest")
    assert "␛" in terminal("\x1b]0;title without an end")


@given(ODD)
def test_output_of_a_terminal_is_never_markup_and_never_raises(text: str) -> None:
    shown = terminal(text)
    assert not re.search("[<>\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]", bare(shown))


@given(st.text(st.characters(exclude_characters="\x1b\x9b\x9d\x90\x98\x9e\x9f\r"), max_size=80))
def test_text_without_sequences_is_shown_like_any_other(text: str) -> None:
    assert terminal(text) == visible(text)
    assert without_sequences(text) == text


# --- odd characters and cells ---


def test_tags_and_controls_of_the_second_row_are_marks() -> None:
    assert "U+E0068" in visible("soft\U000e0068\U000e0069")
    assert "U+0085" in visible("a\x85b")
    scotland = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
    assert visible(scotland) == scotland


def test_what_stands_between_backticks_is_code_and_all_is_escaped() -> None:
    assert with_code("run `a & <b>`; <i>") == "run <code>a &amp; &lt;b&gt;</code>; &lt;i&gt;"
    assert with_code("one ` alone and\n`") == "one ` alone and\n`"


def test_joiners_stay_where_a_script_needs_them() -> None:
    persian = "می\u200cخواهم"
    assert visible(persian) == persian
    assert "U+200C" in visible("pass\u200cword")


@pytest.mark.parametrize(
    "cluster",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "e\u0301\u0323",
        "\U0001f44d\U0001f3fd",
        "\U0001f1e9\U0001f1ea",
        "❤\ufe0f",
    ],
)
def test_a_cell_is_not_cut_through_a_character(cluster: str) -> None:
    for before in range(190, 200):
        shown = cell("a" * before + cluster + "b" * 50)
        assert len(shown) <= 200
        assert shown.rstrip("…b") in ("a" * before, "a" * before + cluster)


def test_a_cell_has_no_terminal_escapes() -> None:
    assert cell("\x1b[1;31mFAILED\x1b[0m 3\n tests") == "FAILED 3 tests"


# --- code ---


@given(
    st.text(st.sampled_from("\"'`#-/*\\\n ab_1.5{}[]:,selct"), max_size=120),
    st.sampled_from(["json", "python", "sql", "javascript", "bash", "unheard of"]),
)
def test_the_parts_of_code_are_the_code(text: str, language: str) -> None:
    assert "".join(part for _, part in code_tokens(text, language)) == text


def test_code_is_coloured_by_its_parts() -> None:
    kinds = {part: kind for kind, part in code_tokens('{"a": [1.5, true, "b"]}', "json")}
    assert kinds['"a"'] == "key" and kinds["1.5"] == "num"
    assert kinds["true"] == "word" and kinds['"b"'] == "str"
    kinds = {part: kind for kind, part in code_tokens("def f():  # x\n  return 'y'", "py")}
    assert kinds["def"] == kinds["return"] == "word"
    assert kinds["# x"] == "note" and kinds["'y'"] == "str" and kinds["f"] == ""


def test_code_from_outside_is_never_markup() -> None:
    assert "<b>" not in code("'<b>' <script>", "python")
    assert "<script>" not in with_fences("```js\n<script>\n```\n<script>")


def test_fenced_blocks_are_coloured_and_nothing_is_taken_away() -> None:
    text = "see\n```python\nreturn 1\n```\nand\n```\nplain\n"
    shown = with_fences(text)
    assert bare(shown) == text
    assert '<span class="sh-word">return</span>' in shown


def test_a_language_is_told_from_the_names() -> None:
    assert language_of("run_sql", "query", "x") == "sql"
    assert language_of("bash", "command", "ls") == "shell"
    assert language_of("python", "code", "1") == "python"
    assert language_of("send", "body", '{"a": 1}') == "json"
    assert language_of("send", "text", "hello") == ""


# --- cards ---


def test_reasoning_stands_apart_from_what_was_said() -> None:
    said = "<think>First I look.\nThen I count.</think>\n\nwc -l x"
    card = build_card(FakeEvent("action", {"text": said, "form": "command", "command": "wc -l x"}))
    assert card.reasoning == "First I look.\nThen I count."
    assert card.payload["text"] == "wc -l x"
    assert not card.payload["has_more"]


def test_words_beside_a_command_are_not_lost() -> None:
    said = "I count them:\n```\nwc -l x\n```"
    card = build_card(FakeEvent("action", {"text": said, "form": "command", "command": "wc -l x"}))
    assert card.payload["has_more"]


def test_arguments_of_a_tool_keep_their_line_breaks() -> None:
    payload = {"tool": "run_sql", "arguments": {"query": "SELECT 1\nFROM t", "n": 5}}
    card = build_card(FakeEvent("action", payload))
    assert [one["text"] for one in card.payload["shown_arguments"]] == ["SELECT 1\nFROM t", "5"]


def test_a_card_with_little_text_is_not_cut() -> None:
    card = build_card(FakeEvent("action", {"text": "\n".join("ab")}))
    assert capped(card) is card


@pytest.mark.parametrize(
    "payload",
    [
        {"segments": [{"kind": "env_output", "text": "x\n" * 500}]},
        {"segments": [{"kind": "env_output", "text": "x" * 50_000}]},
    ],
)
def test_a_cut_card_says_what_it_leaves_out(payload: dict[str, Any]) -> None:
    card = capped(build_card(FakeEvent("observation", payload)))
    [segment] = card.segments
    assert card.capped is not None
    whole = payload["segments"][0]["text"]
    assert len(segment.text) + card.capped.hidden_chars == len(whole)
    assert segment.text.count("\n") <= LINES


def test_everything_in_a_card_is_cut() -> None:
    long = "word " * 20_000
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("rollout.started", {"prompt": long, "messages": [{"role": "user", "content": long}] * 99}),
        ("told", {"text": long, "functions": [{"function": {"name": "f", "description": long}}]}),
        ("action", {"text": f"<think>{long}</think>{long}", "arguments": {"code": long}}),
        ("verdict", {"reason": long, "name": "n"}),
        ("skill.loaded", {"content": long, "name": "n"}),
        ("novel", {"anything": {"deep": long}}),
    ]
    for kind, payload in payloads:
        card = capped(build_card(FakeEvent(kind, payload)))
        card_texts = json.dumps([card.payload.get(k) for k in ("prompt", "messages", "text")])
        assert len(card_texts) < 70_000
        assert len(card.body) <= 4_000 and len(card.reasoning) <= 4_000
        assert card.capped is not None, kind


# --- media ---


def test_media_are_named_and_their_bytes_are_no_text() -> None:
    data = "iVBORw0KGgo" + "A" * 200
    payload = {
        "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
            {"type": "image", "mimeType": "image/jpeg", "data": data},
        ],
        "text": f"![x](data:image/gif;base64,{data}) and words",
    }
    shown, media = split_media(payload)
    assert [medium.type for medium in media] == ["image/png", "image/jpeg", "image/gif"]
    assert data not in json.dumps(shown) and "and words" in shown["text"]
    assert [medium.is_drawn for medium in media] == [True, False, False]
    assert data not in raw_card(FakeEvent("turn", payload)).body


def test_a_payload_without_media_stays_as_it_is() -> None:
    payload = {"a": [1, None, {"data": "short", "media_type": "image/png"}], "b": "base64"}
    assert split_media(payload) == (payload, [])


def test_broken_base64_is_named_and_not_drawn() -> None:
    _, [medium] = split_media("data:image/png;base64,iVBORw0KGgo=A")
    assert not medium.is_drawn or medium.decoded() is not None
    _, [medium] = split_media("data:image/png;base64,A")
    assert medium.decoded() is None and not medium.is_drawn


# --- the skeleton ---


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**8)), max_size=60))
def test_the_skeleton_has_a_letter_for_every_event(events: list[tuple[str, int]]) -> None:
    index = TraceIndex.of(IndexRow(i, kind, size) for i, (kind, size) in enumerate(events, start=1))
    told = index.as_json()
    assert told["seqs"] is None
    assert [told["kinds"][LETTERS.index(c)] for c in told["codes"]] == [kind for kind, _ in events]
    assert len(told["sizes"]) == len(events)
    assert sum(index.counts.values()) == len(events)


def test_a_trace_with_very_many_kinds_has_one_word_for_the_rest() -> None:
    told = TraceIndex.of(IndexRow(i, f"kind{i}", 1) for i in range(1, 200)).as_json()
    assert len(told["kinds"]) == len(LETTERS)
    assert told["kinds"][LETTERS.index(told["codes"][-1])] == OTHER


def test_larger_events_have_later_letters() -> None:
    letters = [LETTERS.index(size_letter(size)) for size in (0, 100, 1_000, 10_000, 10**9)]
    assert letters == sorted(set(letters))


def test_another_order_than_that_of_arrival_is_told() -> None:
    index = TraceIndex.of([IndexRow(2, "a", 1), IndexRow(1, "a", 1, depth=1)])
    assert index.as_json()["seqs"] == [2, 1]
    assert index.as_json()["depths"] == "ab"
    assert index.last_seq == 2


def test_the_last_attempt_and_single_kinds_are_found_by_column() -> None:
    kinds = ["a", RESTART, "b", RESTART, "a", "b"]
    index = TraceIndex.of(IndexRow(i, kind, 1) for i, kind in enumerate(kinds, start=1))
    assert index.first_of_last_attempt == 3
    assert index.seqs_of(["a"]) == [1, 5]
    assert index.seqs_of([]) == [1, 2, 3, 4, 5, 6]
    empty = TraceIndex.of([])
    assert (len(empty), empty.last_seq, empty.first_of_last_attempt) == (0, 0, 0)
    assert empty.as_json() == {"kinds": [], "codes": "", "sizes": "", "seqs": None, "depths": ""}


@given(st.text(st.sampled_from("0123456789-, x"), max_size=60))
def test_ranges_from_outside_are_read_within_their_limit(text: str) -> None:
    seqs = read_seqs(text)
    assert len(seqs) == len(set(seqs)) <= MOST_EVENTS


def test_ranges_are_read_in_the_order_asked_for() -> None:
    assert read_seqs("7,9-11,7") == [7, 9, 10, 11]
