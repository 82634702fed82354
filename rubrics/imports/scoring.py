"""What a tree of reported scores is worth, by our rules.

A score that is missing, null, no number, not finite or outside 0 to 1 leaves everything that needs
it undecided, with the path of its leaf; it is never 1 and never clamped. What a sequence does not
reach is not asked for. Weights may be negative, which makes a penalty; a sum outside 0 to 1 is
undecided as well. Sums are exact, so that weights that add up to 1 only nearly cannot leave the
range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.imports.tree import REPORTED, Node, NodeKind

_DONE_ONLY = frozenset({NodeKind.TRAJECTORY, NodeKind.DISCOUNTED})


@dataclass(frozen=True)
class Scored:
    value: float
    nodes: tuple[Mapping[str, Any], ...] = ()
    """What was looked at: path, kind, value, in the order of deciding."""


@dataclass
class _Reading:
    components: Mapping[str, Any]
    is_done: bool
    nodes: list[Mapping[str, Any]] = field(default_factory=list)


def score_tree(node: Node, components: Mapping[str, Any], *, is_done: bool = True) -> Scored:
    """`is_done`: the environment ended the episode; a trajectory has no score before.

    Raises CriterionFailed with the path of what could not be decided.
    """
    reading = _Reading(components, is_done)
    value = _value(node, _step(node, 0), reading)
    if not 0 <= value <= 1:
        raise CriterionFailed(f"{_step(node, 0)}: {float(value):g} is outside 0 to 1")
    return Scored(float(value), tuple(reading.nodes))


def _value(node: Node, path: str, reading: _Reading) -> Fraction:
    if node.kind in REPORTED:
        value = _reported(node, path, reading)
    elif node.kind is NodeKind.WEIGHTED_SUM:
        value = _weighted(node, path, reading)
    elif node.kind is NodeKind.GATE:
        value = _value(node.children[0], _below(path, node, 0), reading)
        if value < Fraction(node.params.get("threshold", 1.0)):
            value = Fraction(0)
    elif node.kind is NodeKind.SEQUENTIAL:
        value = _sequential(node, path, reading)
    else:
        raise CriterionFailed(f"{path}: a {node.kind} has no score of its own")
    reading.nodes.append({"path": path, "kind": node.kind.value, "value": float(value)})
    return value


def _weighted(node: Node, path: str, reading: _Reading) -> Fraction:
    total = Fraction(0)
    for i, child in enumerate(node.children):
        total += Fraction(node.weights[i]) * _value(child, _below(path, node, i), reading)
    return total / sum(map(Fraction, node.weights))


def _sequential(node: Node, path: str, reading: _Reading) -> Fraction:
    value = Fraction(0)
    for i, child in enumerate(node.children):
        value = _value(child, _below(path, node, i), reading)
        if value == 0:
            break
    return value


def _reported(node: Node, path: str, reading: _Reading) -> Fraction:
    if node.kind in _DONE_ONLY and not reading.is_done:
        raise CriterionFailed(
            f"{path}: the episode was cut off before it was done, so its trajectory has no score"
        )
    if node.component not in reading.components:
        known = ", ".join(sorted(reading.components)) or "none"
        raise CriterionFailed(
            f"{path}: the environment reported no score {node.component!r}; it reported {known}"
        )
    value = reading.components[node.component]
    if value is None:
        raise CriterionFailed(f"{path}: the score {node.component!r} is null")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CriterionFailed(f"{path}: the score {node.component!r} is {value!r:.60}, no number")
    if not 0 <= value <= 1:
        raise CriterionFailed(
            f"{path}: the score {node.component!r} is {value:g}, which is outside 0 to 1"
        )
    return Fraction(value)


def _step(node: Node, place: int) -> str:
    name = node.key or node.component or str(place)
    return name if node.kind in REPORTED else f"{node.kind.value}"


def _below(path: str, node: Node, place: int) -> str:
    child = node.children[place]
    return f"{path}[{place}].{_step(child, place)}"
