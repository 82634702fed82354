"""A place in a JSON answer holds what it should (JSONPath, RFC 9535).

Numbers are equal by value (1 and 1.0), true is not 1. An answer that is no JSON is a wrong answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonpath
from jsonpath.exceptions import JSONPathError

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.json_equal import is_equal
from rubrics.types import Criterion, Transcript, Verdict

SHOWN_CHARS = 200


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    if transcript.answer is None:
        return Verdict.scored(criterion, 0.0, "no final answer")
    cites = tuple(step.seq for step in transcript.steps if step.answer is not None)
    try:
        document = json.loads(transcript.answer, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return Verdict.scored(criterion, 0.0, f"the answer is not JSON: {error}", cites)
    path = str(criterion.params["path"])
    found = jsonpath.findall(path, document)
    if "equals" not in criterion.params:
        reason = f"{len(found)} values at {path}"
        return Verdict.scored(criterion, float(bool(found)), reason, cites)
    wanted = criterion.params["equals"]
    enough = all if KIND.param(criterion, "match") == "all" else any
    good = bool(found) and enough(is_equal(value, wanted) for value in found)
    reason = f"{_shown(found)} at {path}, expected {_shown(wanted)}"
    return Verdict.scored(criterion, float(good), reason, cites)


def check(params: Mapping[str, Any]) -> list[str]:
    try:
        jsonpath.compile(str(params["path"]))
    except JSONPathError as error:
        return [f"params.path: not a JSONPath (RFC 9535): {error}"]
    return []


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


KIND = Kind(
    name="json_path",
    about="A place in a JSON answer holds what it should",
    decide=decide,
    params=(
        Param("path", ParamType.TEXT, "where to look, for instance $.items[0].id", required=True),
        Param("equals", ParamType.JSON, "the value; where absent, the place must exist"),
        Param(
            "match",
            ParamType.TEXT,
            "how many of the places must hold it",
            default="all",
            choices=("all", "any"),
        ),
    ),
    check=check,
)
