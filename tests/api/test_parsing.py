"""What of JSON the API takes: all that both databases and the answer can give back."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from orchestrator.api.parsing import DEEPEST, StorableJson
from tests.api.client import problem_in, program_of
from tests.base import People

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Half a surrogate pair is no text.
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


def parsed(body: str | bytes) -> Any:
    content = body.encode() if isinstance(body, str) else body
    return StorableJson().parse(io.BytesIO(content))


@given(VALUES, st.booleans())
def test_whatever_can_be_kept_is_taken_as_it_is(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    if "\\u0000" not in text:
        assert parsed(text) == value


@pytest.mark.parametrize(
    "body",
    [
        '{"a": "\\u0000"}',
        '{"\\u0000": 1}',
        '["\\ud800"]',
        '["\\uDE00 x"]',
        "[1e999]",
        "[NaN]",
        "[-Infinity]",
        "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
        "[" * 100_000,
        "{",
        "",
        b'"\xff"',
    ],
)
def test_what_cannot_be_kept_is_refused(body: str | bytes) -> None:
    with pytest.raises(ParseError):
        parsed(body)


def test_a_written_backslash_and_a_whole_pair_are_text() -> None:
    assert parsed('["\\\\u0000", "\\ud83d\\ude00"]') == ["\\u0000", "😀"]


@pytest.mark.django_db
def test_no_text_holds_a_nul(people: People) -> None:
    program = program_of(people.editor, people.project)
    problem_in(program.get("events", people.project.pk, q="a\x00b"), 400)
    refused = program.post("harnesses", people.project.pk, body={"files": {"a": "\x00"}})
    assert "NUL" in problem_in(refused, 400)["detail"]
