"""The author's own function decides, in the sandbox.

The function gets the trace as a plain object and returns a number from 0 to 1, a truth value, or
{"value": …, "reason": …, "cites": […]}; {"not_applicable": "why"} where it does not concern the
rollout. What it raises, and what the sandbox ends, is an errored verdict with its words.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.judge.view import step_of
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import CodeRequest, Criterion, Scope, Services, Transcript, Verdict

REASON_CHARS = 1000


async def decide(criterion: Criterion, transcript: Transcript, services: Services) -> Verdict:
    source = str(criterion.params["source"])
    request = CodeRequest(source, function_in(source), trace_of(transcript))
    result = await services.run_code(request)
    detail = {"printed": result.printed} if result.printed else {}
    return _verdict(criterion, transcript, result.value, detail)


def trace_of(transcript: Transcript) -> dict[str, Any]:
    """What an author's function sees, as JSON."""
    return {
        "task": transcript.task,
        "labels": dict(transcript.labels),
        "expected": transcript.expected,
        "answer": transcript.answer,
        "reward": transcript.reward,
        "components": dict(transcript.components),
        "state": dict(transcript.state),
        "wall_s": transcript.wall_s,
        "tokens": transcript.tokens,
        "cost_usd": transcript.cost_usd,
        "steps": [
            {
                **step_of(step),
                "seq": step.seq,
                "index": step.index,
                "action": step.action,
                "command": step.command,
                "answer": step.answer,
                "output": step.output,
                "reward": step.reward,
                "done": step.done,
            }
            for step in transcript.steps
        ],
    }


def function_in(source: str) -> str:
    """Name of the function that decides: the last one defined at the top of the text.

    Raises ValueError if there is none, SyntaxError if it is no Python.
    """
    names = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    if not names:
        raise ValueError("defines no function")
    return names[-1]


def _verdict(
    criterion: Criterion, transcript: Transcript, returned: Any, detail: Mapping[str, Any]
) -> Verdict:
    given = returned if isinstance(returned, Mapping) else {"value": returned}
    if given.get("not_applicable"):
        reason = str(given["not_applicable"])[:REASON_CHARS]
        return Verdict.not_applicable(criterion, reason, detail)
    value = given.get("value")
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
        raise CriterionFailed(f"returned {value!r:.100}; a number from 0 to 1 is wanted")
    known = {step.seq for step in transcript.steps}
    cites = tuple(seq for seq in given.get("cites") or () if seq in known)
    reason = str(given.get("reason") or f"returned {value!r}")[:REASON_CHARS]
    return Verdict.scored(criterion, value, reason, cites, detail)


def check(params: Mapping[str, Any]) -> list[str]:
    try:
        function_in(str(params["source"]))
    except SyntaxError as error:
        return [f"params.source: line {error.lineno}: {error.msg}"]
    except ValueError as error:
        return [f"params.source: {error}"]
    except (RecursionError, MemoryError):
        # What Python's own parser raises for code that nests too deeply.
        return ["params.source: nests too deeply"]
    return []


KIND = Kind(
    name="python",
    about="A function of your own decides, in the sandbox",
    decide_async=decide,
    params=(
        Param("source", ParamType.TEXT, "Python; its last function gets the trace", required=True),
    ),
    scopes=(Scope.TRAJECTORY, Scope.FINAL_ANSWER, Scope.ENVIRONMENT_STATE),
    check=check,
)
