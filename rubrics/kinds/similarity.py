"""How near the answer comes to the expected text: 0 to 1.

Ratios of rapidfuzz: `characters` is the normalised InDel similarity of the whole texts; `words`
compares sorted words; `word_set` ignores repeated and further words; `part` looks for the shorter
text in the longer one. A similarity rewards copying and near misses: prefer an exact kind where
there is a right answer.
"""

from __future__ import annotations

from collections.abc import Callable

from rapidfuzz import fuzz

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.texts import EXPECTED, IGNORE_CASE, expected_text
from rubrics.types import Criterion, Transcript, Verdict

RATIOS: dict[str, Callable[[str, str], float]] = {
    "characters": fuzz.ratio,
    "words": fuzz.token_sort_ratio,
    "word_set": fuzz.token_set_ratio,
    "part": fuzz.partial_ratio,
}


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    expected = expected_text(criterion, transcript)
    if transcript.answer is None:
        return Verdict.scored(criterion, 0.0, "no final answer")
    method = KIND.param(criterion, "method")
    fold = str.casefold if KIND.param(criterion, "ignore_case") else str
    value = RATIOS[method](fold(transcript.answer), fold(expected)) / 100
    cites = tuple(step.seq for step in transcript.steps if step.answer is not None)
    reason = f"{value:.2f} similar to the expected text, by {method.replace('_', ' ')}"
    return Verdict.scored(criterion, min(1.0, max(0.0, value)), reason, cites)


KIND = Kind(
    name="similarity",
    about="The answer is like the expected text",
    decide=decide,
    params=(
        EXPECTED,
        Param(
            "method",
            ParamType.TEXT,
            "what is compared",
            default="characters",
            choices=tuple(RATIOS),
        ),
        IGNORE_CASE,
    ),
)
