"""Judges' replies: the shared cases, further ones of the same kinds, and whatever fuzz finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rubrics.check import differences, main
from rubrics.judge.reply import read_reply
from rubrics.judge.scale import Scale
from rubrics.types import State

VECTORS = Path(__file__).parents[1] / "vectors" / "judge_replies.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))
BINARY = Scale()
BINARY_NA = Scale(allows_na=True)
UNIT = Scale("scale")
TEN = Scale("scale", 0, 10)
FIVE = Scale("scale", 1, 5)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_shared_cases(case: dict[str, Any]) -> None:
    assert not differences(case)


FURTHER: list[tuple[Scale, str | None, float | str]] = [
    # A number is the value, a text the problem, `n/a` not applicable.
    (BINARY, None, "empty"),
    (BINARY, "<|im_end|>", "empty"),
    (BINARY, "<think>only thoughts</think>", "empty"),
    (BINARY, '{"score": 1}</s>', 1.0),
    (BINARY, '\ufeff{"Score": 0}\u200b', 0.0),
    (TEN, "```\n8\n```", 0.8),
    (TEN, "```json\n8/10\n```", 0.8),
    (TEN, "8 out of 10", 0.8),
    (TEN, "8 out of 5", "scale_mismatch"),
    (TEN, "8 stars", "no_verdict"),
    (TEN, "8,5", "number_format"),
    (TEN, "½", "number_format"),
    (TEN, "−3", "number_format"),
    (TEN, "**8**", 0.8),
    (BINARY, "`pass`", 1.0),
    (BINARY, "unmet", 0.0),
    (BINARY, "Not met", 0.0),
    (UNIT, "yes", "wrong_type"),
    (Scale("scale", 0, 100), "85%", 0.85),
    (Scale("scale", 0, 100), "Score: 85 %", 0.85),
    (BINARY, "100%", "scale_mismatch"),
    (BINARY, "1/1", "scale_mismatch"),
    (TEN, "Overall verdict = 7.5", 0.75),
    (TEN, "## Score: 7", 0.7),
    (TEN, "Score: 7\nVerdict: 7", 0.7),
    (TEN, "Score: 7\nScore: 8", "ambiguous"),
    (TEN, 'Score: 7\n{"score": 7}', 0.7),
    (TEN, 'Score: 6\n{"score": 7}', "ambiguous"),
    (TEN, 'Final score: {"score": 7}', 0.7),
    (TEN, "Score: see the table\nIt is fine.", "no_verdict"),
    (TEN, "Score: 7 or so", "number_format"),
    (TEN, "I read it.\nScore: 7\nGoodbye.", "ambiguous"),
    (TEN, "I think the score is\n\n7", "no_verdict"),
    (BINARY, '{"score": 1} {"score": 1}', "ambiguous"),
    (BINARY, '{"score": 1}\n{"score": 1}', 1.0),
    (BINARY, '{"score": 1, "reason": "a"}\n{"score": 1, "reason": "b"}', "ambiguous"),
    (BINARY, '{"SCORE": 1, "score": 0}', "ambiguous"),
    (BINARY, '{"score": 1, "score": 1}', 1.0),
    (BINARY, '{"score": 1, "verdict": "fail"}', "ambiguous"),
    (BINARY, '{"score": 1, "verdict": "PASS"}', 1.0),
    (BINARY, '{"score": 1, "verdict": "n/a"}', "ambiguous"),
    (TEN, '{"score": 3, "verdict": "pass"}', 0.3),
    (TEN, '{"score": 3, "out_of": 10}', 0.3),
    (TEN, '{"score": 3, "max": "5"}', "scale_mismatch"),
    (BINARY, '{"scores": [{"score": 1}]}', 1.0),
    (BINARY, '{"criteria": {"a": {"score": 1}}}', 1.0),
    (BINARY, '{"results": {"a": 1, "b": 0}, "score": 1}', "wrong_count"),
    (BINARY, "[]", "wrong_count"),
    (BINARY, '{"reason": "fine"}', "no_verdict"),
    (BINARY, '{"score": "{\\"score\\": 1}"}', "wrong_type"),
    (BINARY, '{"score": "excellent"}', "wrong_type"),
    (BINARY, "{'score': 1, 'reason': 'it\\'s done'}", 1.0),
    (BINARY, "{score: 1}", "malformed"),
    (BINARY, "{“score”: 1}", "malformed"),
    (BINARY, '{"score": 0x1}', "malformed"),
    (FIVE, '{"score": +4.}', 0.75),
    (UNIT, '{"score": .5}', 0.5),
    (UNIT, '{"score": -0.0}', 0.0),
    (UNIT, '{"score": "1' + "0" * 400 + '"}', "not_finite"),
    (UNIT, '{"score": 1' + "0" * 400 + "}", "not_finite"),
    (BINARY, '{"score": 1 /* not 0 */}', 1.0),
    (BINARY, '{/* "score": 0, */ "score": 1}', 1.0),
    (BINARY, '{"score": 1, "reason": "\\q odd escape"}', 1.0),
    (BINARY, '{"score":' + "[" * 200, "malformed"),
    (BINARY, '{"score": tru', "truncated"),
    (BINARY, "Thoughts.</think>{\"score\": 1}", 1.0),
    (BINARY, 'It says {"score": 0}.</think>{"score": 1}', "ambiguous"),
    (BINARY, '<thinking>a</thinking>\n```json\n{"score": 1}\n```', 1.0),
    (BINARY, "<think>a <think> b</think> {\"score\": 1}", 1.0),
    (BINARY, '{"a": {"score": 1}}', "no_verdict"),
    (BINARY, 'Look: "x"\n[{"score": 1}]', 1.0),
    (BINARY_NA, "N/A", "n/a"),
    (BINARY_NA, '{"not_applicable": true, "verdict": "n/a"}', "n/a"),
    (BINARY_NA, '{"not_applicable": false, "score": 1}', 1.0),
    (BINARY, '{"not_applicable": true}', "na_not_allowed"),
    (BINARY_NA, '{"not_applicable": "true", "score": 0}', 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("scale", "reply", "expected"), FURTHER)
def test_further_cases(scale: Scale, reply: str | None, expected: float | str) -> None:
    reading = read_reply(scale, reply)
    if expected == "n/a":
        assert reading.state is State.NOT_APPLICABLE
    elif isinstance(expected, str):
        assert (reading.state, reading.value) == (State.ERRORED, None)
        assert reading.problem is not None
        assert reading.problem.value == expected
    else:
        assert reading.state is State.SCORED
        assert reading.value == pytest.approx(expected, abs=1e-9)


PIECES = st.sampled_from(
    ['{"score": 1}', '{"score": 0', '"', "'", "{", "}", "[", "]", "\n", "```", "Score: 1", "1", ",",
     "<think>", "</think>", "\\", "\ud83d", "\x00", "½", "//", "/*", "*/", ":", "null", " "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=60))
@example('{"a":' * 300)
@example('{"a":"' * 3000)
@example("[" * 100_000)
@example("{x" * 100_000)
@settings(deadline=None)
def test_nothing_a_model_writes_raises_or_leaves_the_range(reply: str) -> None:
    for scale in (BINARY, BINARY_NA, FIVE):
        reading = read_reply(scale, reply)
        if reading.state is State.SCORED:
            assert reading.value is not None
            assert 0.0 <= reading.value <= 1.0
        else:
            assert reading.value is None


@given(st.floats(1, 5, allow_nan=False), st.text(max_size=40))
def test_what_is_asked_for_is_read_back(score: float, reason: str) -> None:
    reading = read_reply(FIVE, json.dumps({"score": score, "reason": reason}))
    assert reading.value == pytest.approx((score - 1) / 4)


def test_the_command_reads_a_file_and_tells_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(VECTORS)]) == 0
    assert "68 of 68" in capsys.readouterr().out
    wrong = [{**CASES[0], "expect": {"state": "errored", "reason_kind": "empty"}}]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(wrong))
    assert main([str(path)]) == 1
    assert f"{CASES[0]['id']}: state scored" in capsys.readouterr().out
    assert main([str(tmp_path / "none.json")]) == 2
