"""A tool that must not be called was called. Always negative: 1 means that it happened."""

from __future__ import annotations

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.json_equal import holds
from rubrics.types import Criterion, Scope, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    names = set(criterion.params["tools"])
    wanted = criterion.params.get("arguments", {})
    hits = [s for s in transcript.steps if s.tool in names and holds(s.arguments, wanted)]
    if not hits:
        return Verdict.scored(criterion, 0.0, "no forbidden call")
    reason = f"step {hits[0].index} called {hits[0].tool}"
    return Verdict.scored(criterion, 1.0, reason, tuple(step.seq for step in hits))


KIND = Kind(
    name="forbidden_tool",
    about="A tool was called that must not be",
    decide=decide,
    params=(
        Param("tools", ParamType.TEXTS, "names of the tools", required=True),
        Param("arguments", ParamType.OBJECT, "only calls with these arguments; any where absent"),
    ),
    scopes=(Scope.TRAJECTORY,),
    negative=True,
)
