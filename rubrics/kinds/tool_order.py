"""Tools were called one after the other, others between them allowed or not.

Without `exact` the value is the share of the wanted calls that were made in this order (the longest
common subsequence); with it, all calls together must be just these.
"""

from __future__ import annotations

from collections.abc import Sequence

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Scope, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    wanted = [str(name) for name in criterion.params["tools"]]
    calls = [step for step in transcript.steps if step.tool is not None]
    made = [str(step.tool) for step in calls]
    cites = tuple(step.seq for step in calls if step.tool in wanted)
    said = ", ".join(made[:10]) or "none"
    if KIND.param(criterion, "exact"):
        return Verdict.scored(criterion, float(made == wanted), f"calls: {said}", cites)
    in_order = longest_common(wanted, made)
    reason = f"{in_order} of {len(wanted)} in order; calls: {said}"
    return Verdict.scored(criterion, in_order / len(wanted), reason, cites)


def longest_common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, start=1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


KIND = Kind(
    name="tool_order",
    about="Tools were called in an order",
    decide=decide,
    params=(
        Param("tools", ParamType.TEXTS, "names in their order", required=True),
        Param("exact", ParamType.FLAG, "no other calls, and none twice", default=False),
    ),
    scopes=(Scope.TRAJECTORY,),
)
