"""What a token may be limited to: reading, and changing things of single areas.

A token without scopes does all that its role allows. One with scopes does nothing beside them,
also where its role would let it. `read` covers every GET.
"""

from __future__ import annotations

from collections.abc import Collection

READ = "read"
AREAS: dict[str, str] = {
    "project": "the project, its members and tokens",
    "environments": "environments and their checks",
    "rubrics": "rubrics, their drafts and re-grades",
    "harnesses": "harnesses",
    "models": "models",
    "runs": "runs and their rollouts",
    "searches": "searches and their proposals",
    "climbs": "climbs",
    "trainings": "training jobs and checkpoints",
    "review": "review queues and annotations",
    "gates": "gates",
    "traces": "traces from outside",
}
SCOPES: dict[str, str] = {
    READ: "Read everything that the role may see",
    **{f"{area}:write": f"Change {what}" for area, what in AREAS.items()},
}
_SAFE = ("GET", "HEAD", "OPTIONS")


def allows(scopes: Collection[str], area: str, method: str) -> bool:
    """Whether a token of these scopes may do that; an unknown area only reads."""
    return (READ if method in _SAFE else f"{area}:write") in scopes
