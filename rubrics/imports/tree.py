"""A tree of named scores and how they are combined: OpenEnv's rubrics, as data.

JSON of a node: `kind`, and as the kind has them `component` (name of a score that the environment
reports), `params`, `weights`, `class` (of the author's own rubric) and `children`. A child in a
`rubric_dict` has its `key`. The library itself saves nothing of its containers (their `state_dict`
is empty), so this form is ours, with a version.

    {"kind": "weighted_sum", "weights": [0.7, 0.3], "children": [
        {"kind": "gate", "params": {"threshold": 0.5}, "children": [
            {"kind": "leaf", "component": "tests"}]},
        {"kind": "leaf", "component": "style"}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rubrics.errors import RubricInvalid

FORMAT = "openenv-rubric/1"
MAX_NODES = 500
MAX_DEPTH = 50
SUM_TOLERANCE = 1e-6
"""OpenEnv's own, for weights that add up to 1."""


class NodeKind(StrEnum):
    LEAF = "leaf"
    """A rubric of the author's: its score is what the environment reports."""
    LLM_JUDGE = "llm_judge"
    """A model's score, asked for by the environment and reported by it."""
    TRAJECTORY = "trajectory"
    """A score that exists once the episode is done."""
    DISCOUNTED = "discounted"
    """The same; its parameter `gamma` spreads it over the steps."""
    WEIGHTED_SUM = "weighted_sum"
    GATE = "gate"
    """The child's score, 0 below `threshold`."""
    SEQUENTIAL = "sequential"
    """0 at the first child that gives 0, else the value of the last."""
    RUBRIC_LIST = "rubric_list"
    """A container without a score of its own."""
    RUBRIC_DICT = "rubric_dict"
    """The same, with a key for each child."""


REPORTED = frozenset({NodeKind.LEAF, NodeKind.LLM_JUDGE, NodeKind.TRAJECTORY, NodeKind.DISCOUNTED})
"""Their score is a component; children are kept and not read."""
CONTAINERS = frozenset({NodeKind.RUBRIC_LIST, NodeKind.RUBRIC_DICT})
_FIELDS = frozenset({"kind", "key", "component", "class", "params", "weights", "children"})


@dataclass(frozen=True)
class Node:
    kind: NodeKind
    key: str = ""
    component: str = ""
    class_name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    children: tuple[Node, ...] = ()


def read_node(data: Any) -> Node:
    """A tree whose root has a score. Raises RubricInvalid with every problem and its place."""
    problems: list[str] = []
    node = _read(data, "tree", problems, depth=1)
    if problems or node is None:
        raise RubricInvalid(*problems)
    if node.kind in CONTAINERS:
        raise RubricInvalid(f"tree: a {node.kind} has no score of its own; import its children")
    return node


def read_file(data: Any) -> Node:
    """As `read_node`, with the version around it; a container may be the root."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise RubricInvalid(f'format: accepts an object with "format": "{FORMAT}" and "tree"')
    unknown = sorted(set(data) - {"format", "tree"})
    problems = [f"{name}: unknown; accepts format, tree" for name in unknown]
    node = _read(data.get("tree"), "tree", problems, depth=1)
    if problems or node is None:
        raise RubricInvalid(*problems)
    return node


def write_node(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": node.kind.value}
    if node.key:
        found["key"] = node.key
    if node.component:
        found["component"] = node.component
    if node.class_name:
        found["class"] = node.class_name
    if node.params:
        found["params"] = dict(node.params)
    if node.weights:
        found["weights"] = list(node.weights)
    if node.children:
        found["children"] = [write_node(child) for child in node.children]
    return found


def write_file(node: Node) -> dict[str, Any]:
    return {"format": FORMAT, "tree": write_node(node)}


def components_of(node: Node) -> tuple[str, ...]:
    """Names of the scores that decide the tree, each once."""
    return tuple(dict.fromkeys(_components(node)))


def _components(node: Node) -> Iterator[str]:
    if node.kind in REPORTED:
        yield node.component
        return
    for child in node.children:
        yield from _components(child)


# --- reading


def _read(data: Any, at: str, problems: list[str], depth: int, parent: str = "") -> Node | None:
    if not isinstance(data, Mapping):
        problems.append(f"{at}: accepts an object")
        return None
    if depth > MAX_DEPTH:
        problems.append(f"{at}: deeper than {MAX_DEPTH} levels")
        return None
    before = len(problems)
    for name in sorted(set(map(str, data)) - _FIELDS):
        problems.append(f"{at}.{name}: unknown; accepts {', '.join(sorted(_FIELDS))}")
    try:
        kind = NodeKind(str(data.get("kind")))
    except ValueError:
        problems.append(f"{at}.kind: {data.get('kind')!r}; accepts {', '.join(NodeKind)}")
        return None
    texts = {name: _text(data, name, at, problems) for name in ("key", "component", "class")}
    node = Node(
        kind=kind,
        key=texts["key"],
        component=texts["component"],
        class_name=texts["class"],
        params=_params(data.get("params", {}), at, problems),
        weights=_weights(data.get("weights", ()), at, problems),
        children=_children(data.get("children", ()), kind, at, problems, depth),
    )
    if parent == NodeKind.RUBRIC_DICT and not node.key:
        problems.append(f"{at}.key: required in a rubric_dict")
    if parent != NodeKind.RUBRIC_DICT and node.key:
        problems.append(f"{at}.key: only in a rubric_dict")
    if len(problems) == before:
        problems += [f"{at}{line}" for line in _complaints(node)]
    if depth == 1 and (count := _count(node)) > MAX_NODES:
        problems.append(f"{at}: {count} nodes; accepts at most {MAX_NODES}")
    return node if len(problems) == before else None


def _children(
    data: Any, kind: NodeKind, at: str, problems: list[str], depth: int
) -> tuple[Node, ...]:
    if not isinstance(data, list | tuple):
        problems.append(f"{at}.children: accepts a list")
        return ()
    found = [
        _read(item, f"{at}.children[{i}]", problems, depth + 1, kind) for i, item in enumerate(data)
    ]
    return tuple(node for node in found if node is not None)


def _complaints(node: Node) -> Iterator[str]:
    """What one node lacks or has too much; each line begins with the field."""
    if node.kind in REPORTED:
        if not node.component:
            yield ".component: required; the name of the score that the environment reports"
    elif node.component:
        yield f".component: a {node.kind} has none"
    if not node.children and node.kind not in REPORTED | CONTAINERS:
        yield ".children: at least one; an empty one would score 1 for nothing"
    if node.kind is NodeKind.WEIGHTED_SUM:
        if len(node.weights) != len(node.children):
            yield f".weights: {len(node.weights)} for {len(node.children)} children"
        elif abs(math.fsum(node.weights) - 1.0) > SUM_TOLERANCE:
            yield f".weights: they add up to {math.fsum(node.weights):g}, not to 1"
    elif node.weights:
        yield f".weights: a {node.kind} has none"
    if node.kind is NodeKind.GATE:
        if len(node.children) > 1:
            yield ".children: a gate has one"
        if not _is_number(node.params.get("threshold", 1.0)):
            yield ".params.threshold: accepts a finite number"
    if node.kind is NodeKind.DISCOUNTED:
        gamma = node.params.get("gamma", 0.99)
        if not _is_number(gamma) or not 0 <= gamma <= 1:
            yield ".params.gamma: accepts 0 to 1"
    if node.kind is NodeKind.RUBRIC_DICT:
        keys = [child.key for child in node.children]
        if len(set(keys)) != len(keys):
            yield ".children: a key is used twice"
    elif node.kind not in REPORTED and node.kind is not NodeKind.RUBRIC_LIST:
        for i, child in enumerate(node.children):
            if child.kind in CONTAINERS:
                yield f".children[{i}]: a {child.kind} has no score of its own"


def _count(node: Node) -> int:
    return 1 + sum(_count(child) for child in node.children)


def _text(data: Mapping[str, Any], name: str, at: str, problems: list[str]) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        problems.append(f"{at}.{name}: accepts a text")
        return ""
    return value


def _params(value: Any, at: str, problems: list[str]) -> Mapping[str, Any]:
    try:
        if not isinstance(value, Mapping):
            raise TypeError
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        problems.append(f"{at}.params: accepts an object of finite numbers and texts")
        return {}
    return dict(value)


def _weights(value: Any, at: str, problems: list[str]) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not all(_is_number(item) for item in value):
        problems.append(f"{at}.weights: accepts a list of finite numbers")
        return ()
    return tuple(float(item) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
