"""The engines that can be compared, by the name that the command line knows them by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.optimizer.worlds import Run

OURS = "ours"
RIVALS = (
    *("gepa", "gepa-8", "gepa-2x4", "gepa-2x4-best", "gepa-2x2-8-best", "gepa-8-ledger"),
    "skillopt",
)
"""They run in an environment of their own (`requirements/bench.txt`)."""
DEFAULT = (OURS, *RIVALS)


def is_rival(name: str) -> bool:
    return name in RIVALS


def make(name: str, settings: Mapping[str, Any]) -> Run:
    """The engine of that name. Raises ValueError.

    `ours` is the product's default and `ours:race` another engine of ours by its registered name;
    `-80` behind either reads 80 failing traces and no more. `one-shot` does not search.
    """
    if name.startswith("gepa"):
        from benchmarks.optimizer.rival_gepa import configured

        return configured(name)
    if name == "skillopt":
        from benchmarks.optimizer.rival_skillopt import run

        return run
    # Imported here: rivals have no use for the product, nor the product for them.
    from benchmarks.optimizer import ours

    if name == "one-shot":
        return ours.one_shot
    plain = name.removesuffix("-80")
    if plain != OURS and not plain.startswith(f"{OURS}:"):
        raise ValueError(f"engine {name!r} is unknown")
    engine = plain.removeprefix(OURS).lstrip(":") or "factorial"
    return ours.searched(engine, settings, lessons=None if plain == name else 80)
