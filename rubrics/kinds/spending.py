"""What a rollout took: cost, time, tokens. 1 up to `within`, falling evenly to 0 at `max`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.kinds.base import Decide, Kind, Param, ParamType
from rubrics.types import Criterion, Scope, Transcript, Verdict


def _decider(unit: str, read: Callable[[Transcript], float | None]) -> Decide:
    def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
        spent = read(transcript)
        if spent is None:
            raise CriterionFailed(f"the trace does not say how much it took ({unit})")
        most = float(criterion.params["max"])
        within = float(criterion.params.get("within", most))
        if spent <= within:
            value = 1.0
        else:
            value = max(0.0, (most - spent) / (most - within)) if most > within else 0.0
        reason = f"{spent:g} {unit}; full marks up to {within:g}, none from {most:g} on"
        return Verdict.scored(criterion, value, reason)

    return decide


def _check(params: Mapping[str, Any]) -> list[str]:
    if params["max"] <= 0:
        return ["params.max: must be above 0"]
    if not 0 <= params.get("within", params["max"]) <= params["max"]:
        return ["params.within: accepts 0 to params.max"]
    return []


def _kind(name: str, about: str, unit: str, read: Callable[[Transcript], float | None]) -> Kind:
    return Kind(
        name=name,
        about=about,
        decide=_decider(unit, read),
        params=(
            Param("max", ParamType.NUMBER, f"{unit} from which the value is 0", required=True),
            Param("within", ParamType.NUMBER, f"{unit} up to which it is 1; max where absent"),
        ),
        scopes=(Scope.TRAJECTORY,),
        check=_check,
    )


COST = _kind("cost", "The rollout was cheap", "USD", lambda t: t.cost_usd)
LATENCY = _kind("latency", "The rollout was quick", "seconds", lambda t: t.wall_s)
TOKENS = _kind("tokens", "The rollout took few tokens", "tokens", lambda t: t.tokens)
