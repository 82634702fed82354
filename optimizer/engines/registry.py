"""The engines by name, and how one is made from settings that came as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from optimizer.engines.bootstrap import Bootstrap, BootstrapSettings
from optimizer.engines.contract import Engine
from optimizer.engines.factorial import Factorial, FactorialSettings
from optimizer.engines.gepa import Gepa, GepaSettings
from optimizer.engines.race import Race, RaceSettings
from optimizer.errors import SearchInvalid


def create(name: str, settings: Mapping[str, Any]) -> Engine:
    """Raises SearchInvalid for an unknown engine, an unknown setting or a value out of range."""
    if name not in ENGINES:
        raise SearchInvalid(f"engine: {name!r} is unknown; accepts {', '.join(ENGINES)}")
    kind = ENGINES[name]
    return kind.create(_made_from(kind.settings, settings))


@dataclass(frozen=True)
class Kind:
    """An engine as a form shows it."""

    create: Callable[[Any], Engine]
    settings: type[Any]
    sentence: str
    """For what it is, in one line."""


ENGINES: dict[str, Kind] = {
    "factorial": Kind(
        Factorial,
        FactorialSettings,
        "Estimates the effect of each edit from randomised inclusion, then races the best bundles.",
    ),
    "race": Kind(
        Race, RaceSettings, "Whole rewrites and other models against the incumbent, pair by pair."
    ),
    "bootstrap": Kind(
        Bootstrap, BootstrapSettings, "Random sets of demonstrations, halved until one is left."
    ),
    "gepa": Kind(
        Gepa, GepaSettings, "GEPA's own search over the same edits, every call of it counted here."
    ),
}


def _made_from(kind: type[Any], settings: Mapping[str, Any]) -> Any:
    known = [f.name for f in fields(kind)]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise SearchInvalid(
            f"engine_settings: {', '.join(unknown)} unknown; accepts {', '.join(known)}"
        )
    return kind(**settings)
