"""Whether what an agent leaves is what was expected. Pure.

Objects are compared key by key, a key that is missing counts as null; lists in their order; texts
without regard to runs of white space; numbers by value within the tolerance, also where the agent
wrote one as text (`"12.50"` is 12.5). True is not 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any


def is_equal(expected: Any, given: Any, tolerance: float = 0.0) -> bool:
    """See the module's text. Keys that were not expected make a difference."""
    if isinstance(expected, Mapping):
        if not isinstance(given, Mapping):
            return False
        keys = set(expected) | set(given)
        return all(is_equal(expected.get(k), given.get(k), tolerance) for k in keys)
    if isinstance(expected, list | tuple):
        return (
            isinstance(given, list | tuple)
            and len(given) == len(expected)
            and all(is_equal(e, g, tolerance) for e, g in zip(expected, given, strict=True))
        )
    if isinstance(expected, bool) or expected is None:
        return given is expected
    if isinstance(expected, int | float):
        return _is_near(expected, given, tolerance)
    if isinstance(expected, str):
        return isinstance(given, str) and " ".join(given.split()) == " ".join(expected.split())
    return bool(expected == given)


def has_state(expected: Mapping[str, Any], state: Mapping[str, Any], tolerance: float) -> bool:
    """Whether `state` has all that is expected; objects inside may have further keys."""
    for key, value in expected.items():
        given = state.get(key)
        if isinstance(value, Mapping) and isinstance(given, Mapping):
            if not has_state(value, given, tolerance):
                return False
        elif not is_equal(value, given, tolerance):
            return False
    return True


def checked_reward(value: Any) -> float:
    """What `grade` gave as a reward. `ValueError` for anything but a finite number."""
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"grade gave {value!r:.100}; a finite number was expected")
    return float(value)


def _is_near(expected: float, given: Any, tolerance: float) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return False
    try:
        number = Decimal(given.strip()) if isinstance(given, str) else Decimal(str(given))
        difference = abs(number - Decimal(str(expected)))
        return bool(difference <= Decimal(str(tolerance)))
    except InvalidOperation:
        return False
