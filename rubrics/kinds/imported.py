"""An imported rubric decides: scores that the environment reports, combined as its author said.

The environment keeps its code and reports named scores (`Transcript.components`); the tree that
combines them is data and is evaluated here, by our rules (`rubrics.imports.scoring`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rubrics.errors import RubricInvalid
from rubrics.imports.scoring import score_tree
from rubrics.imports.tree import read_node
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Scope, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    last = transcript.steps[-1:]
    scored = score_tree(
        read_node(criterion.params["tree"]),
        transcript.components,
        is_done=any(step.done for step in last),
    )
    said = ", ".join(
        f"{node['path'].rpartition('.')[2]} {node['value']:g}" for node in scored.nodes[:6]
    )
    more = ", …" if len(scored.nodes) > 6 else ""
    cites = tuple(step.seq for step in last)
    return Verdict.scored(
        criterion, scored.value, f"{said}{more}", cites, {"nodes": list(scored.nodes)}
    )


def check(params: Mapping[str, Any]) -> list[str]:
    try:
        read_node(params["tree"])
    except RubricInvalid as invalid:
        return [f"params.{problem}" for problem in invalid.problems]
    return []


KIND = Kind(
    name="imported",
    about="A rubric of an environment, from scores that it reports",
    decide=decide,
    params=(
        Param("tree", ParamType.OBJECT, "how its scores are combined", required=True),
        Param(
            "within",
            ParamType.TEXT,
            "the container that it came from, for giving it back",
            choices=("rubric_list", "rubric_dict"),
        ),
        Param("key", ParamType.TEXT, "its key in that container"),
    ),
    scopes=(Scope.TRAJECTORY, Scope.FINAL_ANSWER, Scope.ENVIRONMENT_STATE),
    check=check,
)
