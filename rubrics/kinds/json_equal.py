"""Equality of JSON values: numbers by value, true apart from 1, order of keys of no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(is_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(is_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b) if type(a) is type(b) or _are_numbers(a, b) else False


def holds(actual: Any, wanted: Any) -> bool:
    """Whether `actual` has all that `wanted` names; objects may have more."""
    if isinstance(actual, Mapping) and isinstance(wanted, Mapping):
        return all(key in actual and holds(actual[key], wanted[key]) for key in wanted)
    return is_equal(actual, wanted)


def _are_numbers(a: Any, b: Any) -> bool:
    return isinstance(a, int | float) and isinstance(b, int | float)
