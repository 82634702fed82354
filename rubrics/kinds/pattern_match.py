"""The text matches a regular expression.

(The kind is called `regex`; the module must not hide the package.)
"""

from __future__ import annotations

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.patterns import is_found
from rubrics.kinds.texts import IGNORE_CASE, SOURCE, TEXT_SCOPES, judge_texts
from rubrics.types import Criterion, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    pattern = str(criterion.params["pattern"])
    whole, ignore_case = KIND.param(criterion, "whole"), KIND.param(criterion, "ignore_case")
    return judge_texts(
        criterion,
        transcript,
        lambda text: is_found(pattern, text, whole=whole, ignore_case=ignore_case),
        f"matching {pattern!r}",
    )


KIND = Kind(
    name="regex",
    about="The text matches a regular expression",
    decide=decide,
    params=(
        Param("pattern", ParamType.PATTERN, "the expression", required=True),
        Param("whole", ParamType.FLAG, "the whole text must match", default=False),
        IGNORE_CASE,
        SOURCE,
    ),
    scopes=TEXT_SCOPES,
)
