"""A file of the environment's final state is as it should be.

The environment reports its files after the end of the episode; the agent never sees the report. A
file that was too large to be reported has no text: a check of its text is errored, not a zero.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.patterns import is_found
from rubrics.types import Criterion, Scope, Transcript, Verdict

TESTS = ("equals", "contains", "matches")


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    files = transcript.state.get("files")
    if not isinstance(files, Mapping):
        raise CriterionFailed("the environment reports no files of its final state")
    pattern = str(criterion.params["path"])
    found = sorted(path for path in files if fnmatch.fnmatchcase(path, pattern))
    if KIND.param(criterion, "absent"):
        reason = f"there is {found[0]}" if found else f"there is no {pattern}"
        return Verdict.scored(criterion, float(not found), reason)
    if not found:
        return Verdict.scored(criterion, 0.0, f"there is no {pattern}")
    wanted = {name: criterion.params[name] for name in TESTS if name in criterion.params}
    if not wanted:
        return Verdict.scored(criterion, 1.0, f"there is {found[0]}")
    good = [path for path in found if _is_good(path, files[path], wanted)]
    reason = f"{good[0]} is as it should be" if good else f"{found[0]} is not as it should be"
    return Verdict.scored(criterion, float(bool(good)), reason)


def _is_good(path: str, record: Any, wanted: Mapping[str, Any]) -> bool:
    text = record.get("text") if isinstance(record, Mapping) else None
    if not isinstance(text, str):
        raise CriterionFailed(f"{path} was not reported with its text: too large, or not text")
    if "equals" in wanted and text.strip() != str(wanted["equals"]).strip():
        return False
    if "contains" in wanted and not all(part in text for part in wanted["contains"]):
        return False
    return "matches" not in wanted or is_found(str(wanted["matches"]), text)


def check(params: Mapping[str, Any]) -> list[str]:
    if params.get("absent") and any(name in params for name in TESTS):
        return ["params.absent: a file that must not be there has no text"]
    return []


KIND = Kind(
    name="state_file",
    about="A file of the final state is as it should be",
    decide=decide,
    params=(
        Param("path", ParamType.TEXT, "name of the file, with * and ? as wildcards", required=True),
        Param("absent", ParamType.FLAG, "no such file may be there", default=False),
        Param("equals", ParamType.TEXT, "its text, white space at the ends aside"),
        Param("contains", ParamType.TEXTS, "texts that must all be in it"),
        Param("matches", ParamType.PATTERN, "an expression that must be found in it"),
    ),
    scopes=(Scope.ENVIRONMENT_STATE,),
    check=check,
)
