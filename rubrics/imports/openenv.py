"""OpenEnv's rubric trees to rubrics of ours, and back without loss.

A tree becomes one criterion of kind `imported`. A container at the root has no score of its own:
each of its children becomes a criterion, equal in weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rubrics.codec import validate
from rubrics.errors import RubricInvalid
from rubrics.imports.losses import Loss
from rubrics.imports.tree import (
    CONTAINERS,
    Node,
    NodeKind,
    read_file,
    read_node,
    write_file,
    write_node,
)
from rubrics.types import Criterion, RubricSpec, Scope

KIND = "imported"


@dataclass(frozen=True)
class Imported:
    spec: RubricSpec
    losses: tuple[Loss, ...] = ()
    """What the rubric does not say any more."""
    notes: tuple[str, ...] = ()
    """What is carried over and worth knowing."""


def to_spec(data: Any) -> Imported:
    """From the JSON of a tree. Raises RubricInvalid."""
    root = read_file(data)
    if root.kind in CONTAINERS and not root.children:
        raise RubricInvalid(f"tree: an empty {root.kind} scores nothing")
    if root.kind not in CONTAINERS:
        criteria = [_criterion(root, "imported", "Imported rubric")]
    else:
        criteria = []
        for i, child in enumerate(root.children):
            if child.kind in CONTAINERS:
                child = replace(child, key="")
                read_node(write_node(child))  # which says why it has no score
            name = child.key or child.component or f"Part {i + 1}"
            criteria.append(
                _criterion(replace(child, key=""), _id(name, i), name, root.kind, child.key)
            )
    spec = RubricSpec(criteria=tuple(criteria))
    validate(spec)
    return Imported(spec, notes=tuple(_notes(root)))


def from_spec(spec: RubricSpec) -> tuple[dict[str, Any] | None, tuple[Loss, ...]]:
    """The JSON of the tree, with what it does not say; None where there is no tree in it."""
    losses = list(_not_carried(spec))
    ours = [c for c in spec.criteria if c.kind == KIND]
    if not ours:
        return None, tuple(losses)
    within = {str(c.params.get("within", "")) for c in ours}
    if within == {""}:
        losses += [
            Loss(c.id, "a file has one tree; this one stands beside the first") for c in ours[1:]
        ]
        return write_file(_tree(ours[0])), tuple(losses)
    if len(within) > 1:
        losses.append(Loss("criteria", "they come from different containers"))
        return None, tuple(losses)
    kind = NodeKind(within.pop())
    keyed = kind is NodeKind.RUBRIC_DICT
    children = tuple(
        replace(_tree(c), key=str(c.params.get("key") or c.id) if keyed else "") for c in ours
    )
    return write_file(Node(kind, children=children)), tuple(losses)


def _criterion(node: Node, id: str, name: str, within: str = "", key: str = "") -> Criterion:
    params: dict[str, Any] = {"tree": write_node(node)}
    if within:
        params["within"] = str(within)
    if key:
        params["key"] = key
    return Criterion(id=id, kind=KIND, name=name[:120], params=params, scope=Scope.TRAJECTORY)


def _tree(criterion: Criterion) -> Node:
    return read_node(criterion.params["tree"])


def _id(name: str, place: int) -> str:
    """Unique by its number; a name of the environment's may be any text."""
    slug = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:40]
    return f"{slug or 'part'}_{place + 1}"


def _notes(node: Node) -> Iterator[str]:
    if node.kind is NodeKind.LLM_JUDGE:
        default = node.params.get("default_score", 0.0)
        yield (
            f"{node.component}: OpenEnv's judge takes the first number of a reply and {default} "
            "where there is none. A criterion of kind judge asks for a verdict instead."
        )
    if node.kind is NodeKind.WEIGHTED_SUM and min(node.weights) < 0:
        yield "A weight is negative: a sum outside 0 to 1 is errored here."
    for child in node.children:
        yield from _notes(child)


_OURS: Mapping[str, Any] = {
    "weight": 1, "required": False, "negative": False, "threshold": 0.5, "gate": False,
    "group": "",
}  # fmt: skip


def _not_carried(spec: RubricSpec) -> Iterator[Loss]:
    plain = RubricSpec(criteria=())
    for name in ("aggregation", "pass_threshold", "min_coverage", "groups"):
        if getattr(spec, name) != getattr(plain, name):
            yield Loss(name, "OpenEnv's trees have no such setting")
    for criterion in spec.criteria:
        if criterion.kind != KIND:
            yield Loss(criterion.id, f"kind {criterion.kind} has no form in OpenEnv's trees")
            continue
        for name, default in _OURS.items():
            if getattr(criterion, name) != default:
                yield Loss(f"{criterion.id}.{name}", "OpenEnv's trees have no such setting")
        if criterion.applies != type(criterion.applies)():
            yield Loss(f"{criterion.id}.applies", "OpenEnv's trees have no such setting")
