"""Reads a live OpenEnv rubric into the JSON of `rubrics.imports.tree`, in its own process.

`python openenv_child.py module:attribute` prints {"tree": …} or {"failed": why} as one line. The
attribute is a rubric, a class or function without arguments that gives one, or an environment that
has a `rubric`. Standard library alone, so that it runs with the interpreter of any environment that
has OpenEnv; scores are named by their path in the tree.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

FORMAT = "openenv-rubric/1"
_HOME = "openenv.core.rubrics"
_KINDS = {
    "WeightedSum": "weighted_sum",
    "Gate": "gate",
    "Sequential": "sequential",
    "RubricList": "rubric_list",
    "RubricDict": "rubric_dict",
    "ExponentialDiscountingTrajectoryRubric": "discounted",
    "TrajectoryRubric": "trajectory",
    "LLMJudge": "llm_judge",
}
_COMBINE = ("weighted_sum", "gate", "sequential", "rubric_list", "rubric_dict")


def main() -> int:
    # In place of this file's folder, where `openenv` is the neighbour.
    sys.path[0] = os.getcwd()
    # What the author's module prints must not be taken for the answer.
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    try:
        answer: dict[str, Any] = {"format": FORMAT, "tree": tree_of(_found(sys.argv[1]), "")}
    except Exception as error:  # boundary: told to whoever asked
        answer = {"failed": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer_fd, "w", encoding="utf-8") as out:
        out.write(json.dumps(answer, allow_nan=True) + "\n")
    return 1 if "failed" in answer else 0


def tree_of(rubric: Any, path: str) -> dict[str, Any]:
    kind = _kind_of(rubric)
    node: dict[str, Any] = {"kind": kind}
    if kind not in _COMBINE:
        node["component"] = path or "score"
    class_name = f"{type(rubric).__module__}:{type(rubric).__qualname__}"
    if kind == "leaf" or not type(rubric).__module__.startswith(_HOME):
        node["class"] = class_name
    params = _params(rubric, kind)
    if params:
        node["params"] = params
    if kind == "weighted_sum":
        node["weights"] = [float(weight) for weight in _weights(rubric)]
    children = []
    for name, child in _children(rubric):
        found = tree_of(child, f"{path}.{name}" if path else name)
        children.append({**found, "key": name} if kind == "rubric_dict" else found)
    if children:
        node["children"] = children
    return node


def _found(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"{name!r}: accepts module:attribute")
    found: Any = importlib.import_module(module_name)
    for part in attribute.split("."):
        found = getattr(found, part)
    if not _is_rubric(found) and callable(found) and not _is_rubric(getattr(found, "rubric", None)):
        found = found()
    if not _is_rubric(found):
        found = getattr(found, "rubric", None)
    if not _is_rubric(found):
        raise TypeError(f"{name} is no rubric, gives none and has none")
    return found


def _is_rubric(value: Any) -> bool:
    return not isinstance(value, type) and _of_library(type(value), "Rubric")


def _of_library(cls: type, name: str) -> bool:
    return any(base.__name__ == name and base.__module__.startswith(_HOME) for base in cls.__mro__)


def _kind_of(rubric: Any) -> str:
    """Of the library's class that it is, unless the author has replaced how that scores."""
    for base in type(rubric).__mro__:
        kind = _KINDS.get(base.__name__) if base.__module__.startswith(_HOME) else None
        if kind is None:
            continue
        own = type(rubric).__mro__[: type(rubric).__mro__.index(base)]
        replaced = any({"forward", "__call__"} & set(vars(cls)) for cls in own)
        return "leaf" if kind in _COMBINE and replaced else kind
    return "leaf"


def _children(rubric: Any) -> list[tuple[str, Any]]:
    """Those that still count: an attribute that was set to None stays registered in the library."""
    named = dict(rubric.named_children())
    own = {"_rubric_children", "_forward_hooks", "_forward_pre_hooks"}
    held_by = {
        id(child)
        for name, value in vars(rubric).items()
        if name not in own
        for child in (
            value.values() if isinstance(value, dict)
            else value if isinstance(value, list | tuple)
            else (value,)
        )
    }  # fmt: skip
    return [(name, child) for name, child in named.items() if id(child) in held_by]


def _weights(rubric: Any) -> Any:
    for name in ("_weights", "weights"):
        if hasattr(rubric, name):
            return getattr(rubric, name)
    raise TypeError("this version's WeightedSum keeps no weights that can be read")


def _params(rubric: Any, kind: str) -> dict[str, Any]:
    if kind == "gate":
        return {"threshold": float(rubric.threshold)}
    if kind in ("trajectory", "discounted"):
        params = {"intermediate_reward": float(rubric.intermediate_reward)}
        return {**params, "gamma": float(rubric.gamma)} if kind == "discounted" else params
    if kind == "llm_judge":
        return dict(rubric.state_dict())
    return {}


if __name__ == "__main__":
    sys.exit(main())
