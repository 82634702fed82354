"""How many steps the agent took: 1 up to `within`, falling evenly to 0 just above `max`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Scope, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    most = int(criterion.params["max"])
    within = int(criterion.params.get("within", most))
    n = transcript.n_steps
    # With within 2 and max 4: 1, 1, 2/3, 1/3, 0 for 1, 2, 3, 4, 5 steps.
    value = min(1.0, max(0.0, (most + 1 - n) / (most + 1 - within)))
    cites = tuple(step.seq for step in transcript.steps[within:])
    return Verdict.scored(
        criterion, value, f"{n} steps; full marks up to {within}, none above {most}", cites
    )


def check(params: Mapping[str, Any]) -> list[str]:
    if params.get("within", params["max"]) > params["max"]:
        return ["params.within: must not be above params.max"]
    return []


KIND = Kind(
    name="steps",
    about="The agent needed few steps",
    decide=decide,
    params=(
        Param("max", ParamType.COUNT, "above so many steps the value is 0", required=True),
        Param("within", ParamType.COUNT, "up to so many steps the value is 1; max where absent"),
    ),
    scopes=(Scope.TRAJECTORY,),
    check=check,
)
