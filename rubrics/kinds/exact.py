"""The text equals the expected one."""

from __future__ import annotations

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.texts import (
    EXPECTED,
    IGNORE_CASE,
    SOURCE,
    TEXT_SCOPES,
    expected_text,
    judge_texts,
)
from rubrics.types import Criterion, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    strip, ignore_case = KIND.param(criterion, "strip"), KIND.param(criterion, "ignore_case")

    def normal(text: str) -> str:
        text = text.strip() if strip else text
        return text.casefold() if ignore_case else text

    expected = normal(expected_text(criterion, transcript))
    return judge_texts(
        criterion, transcript, lambda text: normal(text) == expected, "equal to the expected text"
    )


KIND = Kind(
    name="exact",
    about="The text is exactly the expected one",
    decide=decide,
    params=(
        EXPECTED,
        IGNORE_CASE,
        Param("strip", ParamType.FLAG, "white space at the ends does not matter", default=True),
        SOURCE,
    ),
    scopes=TEXT_SCOPES,
)
