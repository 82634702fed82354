from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.transcript_codec import from_json, to_json
from rubrics.types import Step, Transcript

TEXT = st.text(max_size=8)
JSON = st.dictionaries(TEXT, st.integers() | TEXT | st.none(), max_size=3)
STEPS = st.builds(
    Step,
    index=st.integers(0, 9),
    seq=st.integers(0, 99),
    action=TEXT,
    command=st.none() | TEXT,
    answer=st.none() | TEXT,
    output=TEXT,
    reward=st.none() | st.floats(-1, 1),
    done=st.booleans(),
    tool=st.none() | TEXT,
    arguments=JSON,
)
TRANSCRIPTS = st.builds(
    Transcript,
    steps=st.lists(STEPS, max_size=3).map(tuple),
    answer=st.none() | TEXT,
    expected=st.none() | TEXT,
    reward=st.none() | st.floats(0, 1),
    task=TEXT,
    labels=st.dictionaries(TEXT, TEXT, max_size=2),
    state=JSON,
    components=st.dictionaries(TEXT, st.none() | st.floats(0, 1), max_size=2),
)


@given(TRANSCRIPTS)
def test_a_transcript_survives_json(transcript: Transcript) -> None:
    assert from_json(json.loads(json.dumps(to_json(transcript)))) == transcript


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"stepz": []}, "transcript.stepz"),
        ({"steps": [{"index": 1}]}, "not a transcript"),
        ({"steps": [{"index": 1, "seq": 1, "action": "a", "x": 1}]}, r"steps\[0\].x"),
        ({"steps": 3}, "not a transcript"),
        ([], "accepts an object"),
    ],
)
def test_what_is_none_is_named(data: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_json(data)  # type: ignore[arg-type]
