"""A tool was called, so often, with such arguments.

Objects in `arguments` name what must be there; further arguments do not matter. For environments
with a shell, `command` is an expression that a command must match instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.json_equal import holds
from rubrics.kinds.patterns import is_found
from rubrics.types import Criterion, Scope, Step, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    hits = [step for step in transcript.steps if _is_hit(criterion, step)]
    least = int(KIND.param(criterion, "min"))
    most = criterion.params.get("max")
    good = len(hits) >= least and (most is None or len(hits) <= int(most))
    bounds = f"at least {least}" + ("" if most is None else f", at most {most}")
    reason = f"{len(hits)} calls of {_what(criterion)}; {bounds}"
    return Verdict.scored(criterion, float(good), reason, tuple(step.seq for step in hits))


def _is_hit(criterion: Criterion, step: Step) -> bool:
    params = criterion.params
    if KIND.param(criterion, "succeeded") and (step.tool_error or step.exit_status):
        return False
    if "command" in params:
        return step.command is not None and is_found(str(params["command"]), step.command)
    return step.tool == params["tool"] and holds(step.arguments, params.get("arguments", {}))


def _what(criterion: Criterion) -> str:
    return str(criterion.params.get("tool") or f"commands like {criterion.params['command']!r}")


def check(params: Mapping[str, Any]) -> list[str]:
    if ("tool" in params) == ("command" in params):
        return ["params.tool: give exactly one of tool and command"]
    if "command" in params and "arguments" in params:
        return ["params.arguments: of a tool; a command has none"]
    if "max" in params and params["max"] < params.get("min", 1):
        return ["params.max: must not be below params.min"]
    return []


KIND = Kind(
    name="tool_called",
    about="A tool or a command was used",
    decide=decide,
    params=(
        Param("tool", ParamType.TEXT, "name of the tool"),
        Param("arguments", ParamType.OBJECT, "what it must have been called with, among others"),
        Param("command", ParamType.PATTERN, "for a shell: what a command must match"),
        Param("min", ParamType.COUNT, "least number of calls", default=1),
        Param("max", ParamType.COUNT, "greatest number of calls; any where absent"),
        Param("succeeded", ParamType.FLAG, "only calls without an error count", default=False),
    ),
    scopes=(Scope.TRAJECTORY,),
    check=check,
)
