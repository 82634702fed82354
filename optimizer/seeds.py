"""Randomness without a state: every choice is drawn from a generator made for it alone.

The seed is a hash of what the choice is for, so a search that is interrupted, resumed or replayed
asks for exactly the same things.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def derive(*parts: str | int) -> int:
    """A number in 0 to 2⁶³−1 from the parts; their order and types count."""
    digest = hashlib.sha256(json.dumps(list(parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*parts: str | int) -> random.Random:
    return random.Random(derive(*parts))


def shuffled(items: Sequence[T], *parts: str | int) -> list[T]:
    result = list(items)
    generator(*parts).shuffle(result)
    return result
