"""The answer is JSON that satisfies a schema.

An answer that is no JSON is a wrong answer; a bad schema is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry

from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    if transcript.answer is None:
        return Verdict.scored(criterion, 0.0, "no final answer")
    cites = tuple(step.seq for step in transcript.steps if step.answer is not None)
    try:
        document = json.loads(transcript.answer, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return Verdict.scored(criterion, 0.0, f"the answer is not JSON: {error}", cites)
    # An empty registry: a "$ref" to an address must never be fetched.
    validator = Draft202012Validator(criterion.params["schema"], registry=Registry())
    problem = best_match(validator.iter_errors(document))
    if problem is None:
        return Verdict.scored(criterion, 1.0, "satisfies the schema", cites)
    where = problem.json_path
    return Verdict.scored(criterion, 0.0, f"{where}: {problem.message[:300]}", cites)


def check(params: Mapping[str, Any]) -> list[str]:
    try:
        Draft202012Validator.check_schema(params["schema"])
    except SchemaError as error:
        return [f"params.schema: not a JSON schema (draft 2020-12): {error.message}"]
    return []


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


KIND = Kind(
    name="json_schema",
    about="The answer is JSON that satisfies a schema",
    decide=decide,
    params=(Param("schema", ParamType.OBJECT, "JSON schema, draft 2020-12", required=True),),
    check=check,
)
