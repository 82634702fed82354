"""Comparing what environments show: paths, values, differences. Pure.

Fields that name an episode rather than say something of it are left out, as is metadata (openenv's
pitfall P16): both differ from episode to episode in sound environments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

IDENTITY_FIELDS = frozenset(
    {"seed", "episode_id", "session_id", "request_id", "id", "uuid", "metadata"}
)
_ABSENT = object()


def comparable(value: Any) -> Any:
    """The value without identity fields, at every depth."""
    if isinstance(value, Mapping):
        return {k: comparable(v) for k, v in value.items() if k not in IDENTITY_FIELDS}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, scalar) of everything in it; a path reads `a.b[0].c`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path or "(all)", value


def differing_paths(one: Any, other: Any, limit: int = 5) -> list[str]:
    """Where two values differ, identity fields left out; the first few."""
    left, right = dict(leaves(comparable(one))), dict(leaves(comparable(other)))
    found = []
    for path in [*left, *(p for p in right if p not in left)]:
        if left.get(path, _ABSENT) != right.get(path, _ABSENT):
            found.append(path)
            if len(found) == limit:
                break
    return found
