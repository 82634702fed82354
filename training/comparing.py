"""Values of a test vector against what is expected, and against what known defects would give.

Pure: nested lists and mappings of numbers. `training.check` computes the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

Values = dict[str, Any]


def compare(expected: Any, actual: Any, tolerance: float, path: str = "") -> list[str]:
    """Differences between nested values; numbers within `tolerance`, infinities and nan equal."""
    if isinstance(expected, Mapping):
        problems = []
        for name, value in expected.items():
            here = f"{path}.{name}" if path else name
            if not isinstance(actual, Mapping) or name not in actual:
                problems.append(f"{here}: this kind of case computes no such value")
            else:
                problems += compare(value, actual[name], tolerance, here)
        return problems
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return [f"{path}: expected {_short(expected)}, got {_short(actual)}"]
        problems = []
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            problems += compare(one, other, tolerance, f"{path}[{index}]")
        return problems
    return (
        []
        if _same(expected, actual, tolerance)
        else [f"{path}: expected {_short(expected)}, got {_short(actual)}"]
    )


def _same(expected: Any, actual: Any, tolerance: float) -> bool:
    if expected is None or actual is None:
        return expected is actual
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    one, other = float(expected), float(actual)
    if math.isnan(one) or math.isinf(one) or math.isnan(other) or math.isinf(other):
        return one == other or (math.isnan(one) and math.isnan(other))
    return abs(one - other) <= tolerance


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def against_expected(expected: Mapping[str, Any], values: Values, tolerance: float) -> list[str]:
    """Differences from the expected values, through the chunked head as well where there is one."""
    plain = {name: value for name, value in expected.items() if name != "nonzero_grad_rows"}
    problems = compare(plain, values, tolerance)
    if "nonzero_grad_rows" in expected:
        problems += _compare_nonzero_rows(expected, values, tolerance)
    if values.get("_head") is not None and "grad_logits" in expected:
        through_head = compare(expected["grad_logits"], values["_head"], tolerance, "grad_logits")
        problems += [f"through the chunked head: {problem}" for problem in through_head]
    return problems


def _compare_nonzero_rows(
    expected: Mapping[str, Any], values: Values, tolerance: float
) -> list[str]:
    """No gradient outside the expected rows, however tiny; none missing that could be seen."""
    wanted = {tuple(pair) for pair in expected["nonzero_grad_rows"]}
    found = {tuple(pair) for pair in values["nonzero_grad_rows"]}
    problems = [f"gradient in row {list(pair)}" for pair in sorted(found - wanted)]
    for i, t in sorted(wanted - found):
        known = expected.get("grad_logits")
        if known is None or max(abs(float(g)) for g in known[i][t]) > tolerance:
            problems.append(f"no gradient in row {[i, t]}")
    return problems


def defects_shown(case: Mapping[str, Any], values: Values, tolerance: float) -> list[str]:
    """Values that a known defect would give."""
    problems = []
    for defect in case.get("must_not_equal") or []:
        field_path, value = defect["field"], defect["value"]
        if compare(value, _at(values, field_path), tolerance):
            continue
        # Where right and wrong lie closer together than the tolerance there is nothing to tell.
        if compare(value, _at(case["expected"], field_path), tolerance):
            problems.append(f"{field_path} has the value of a defect: {defect.get('why')}")
    return problems


def _at(values: Any, path: str) -> Any:
    """The value at a path such as counts.action[1] or grad_logprobs[0][1]."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        values = values[name] if name else values[int(index)]
    return values
