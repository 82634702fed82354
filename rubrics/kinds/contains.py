"""The text contains one, or all, of some texts."""

from __future__ import annotations

from rubrics.errors import CriterionFailed
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.texts import IGNORE_CASE, SOURCE, TEXT_SCOPES, expected_text, judge_texts
from rubrics.types import Criterion, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    fold = str.casefold if KIND.param(criterion, "ignore_case") else str
    wanted = [fold(text) for text in KIND.param(criterion, "texts") or ()]
    if not wanted:
        wanted = [fold(expected_text(criterion, transcript))]
    if not all(wanted):
        # Every text contains the empty one.
        raise CriterionFailed("an empty text is contained in everything")
    enough = all if KIND.param(criterion, "mode") == "all" else any
    shown = ", ".join(repr(text) for text in wanted[:3]) + (", …" if len(wanted) > 3 else "")
    return judge_texts(
        criterion,
        transcript,
        lambda text: enough(part in fold(text) for part in wanted),
        f"containing {shown}",
    )


KIND = Kind(
    name="contains",
    about="The text contains any or all of the given texts",
    decide=decide,
    params=(
        Param("texts", ParamType.TEXTS, "what to find; where absent, the task's reference answer"),
        Param(
            "mode", ParamType.TEXT, "how many must be there", default="all", choices=("all", "any")
        ),
        IGNORE_CASE,
        SOURCE,
    ),
    scopes=TEXT_SCOPES,
)
