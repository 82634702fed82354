"""The answer is the expected number, within a tolerance.

A number is read only where it is unmistakable: one number in the text, in plain decimal
notation, with commas only as separators of thousands. An answer that holds none or several is a
wrong answer, not an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import regex

from rubrics.errors import CriterionFailed
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Transcript, Verdict

NUMBER = regex.compile(
    r"""
    (?<! [\w.,] )                                      # not the tail of a word or of another number
    [+-]? (?: (?: \d{1,3} (?: ,\d{3} )+ | \d+ ) (?: \.\d+ )? | \.\d+ ) (?: [eE][+-]?\d+ )?
    (?! [\w] | [.,]\d )                                # not the head of one: no 1.5.2, 1,23 or 5kg
    """,
    regex.VERBOSE,
)


def numbers_in(text: str) -> list[float]:
    return [float(found.group().replace(",", "")) for found in NUMBER.finditer(text)]


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    expected = _expected(criterion, transcript)
    if transcript.answer is None:
        return Verdict.scored(criterion, 0.0, "no final answer")
    cites = tuple(step.seq for step in transcript.steps if step.answer is not None)
    found = numbers_in(transcript.answer)
    pick = KIND.param(criterion, "pick")
    if not found or (pick == "only" and len(found) > 1):
        return Verdict.scored(criterion, 0.0, f"{len(found)} numbers in the answer", cites)
    value = found[-1] if pick == "last" else found[0]
    tolerance = max(
        float(KIND.param(criterion, "abs_tol")),
        float(KIND.param(criterion, "rel_tol")) * abs(expected),
    )
    good = math.isfinite(value) and abs(value - expected) <= tolerance
    reason = f"{value:g} is {'' if good else 'not '}within {tolerance:g} of {expected:g}"
    return Verdict.scored(criterion, float(good), reason, cites)


def _expected(criterion: Criterion, transcript: Transcript) -> float:
    given = criterion.params.get("expected")
    if given is not None:
        return float(given)
    found = numbers_in(transcript.expected or "")
    if len(found) != 1 or not math.isfinite(found[0]):
        raise CriterionFailed(
            f"the task's expected answer is not a number: {transcript.expected!r}"
        )
    return found[0]


def check(params: Mapping[str, Any]) -> list[str]:
    return [
        f"params.{name}: must not be negative"
        for name in ("abs_tol", "rel_tol")
        if params.get(name, 0.0) < 0
    ]


KIND = Kind(
    name="number",
    about="The answer is a number near the expected one",
    decide=decide,
    params=(
        Param(
            "expected", ParamType.NUMBER, "the number; where absent, the task's reference answer"
        ),
        Param("abs_tol", ParamType.NUMBER, "largest difference that counts as right", default=0.0),
        Param(
            "rel_tol", ParamType.NUMBER, "the same as a share of the expected number", default=1e-9
        ),
        Param(
            "pick",
            ParamType.TEXT,
            "which number of the answer counts; only: there must be exactly one",
            default="only",
            choices=("only", "first", "last"),
        ),
    ),
    check=check,
)
