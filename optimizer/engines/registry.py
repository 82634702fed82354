"""The engines by name, and how one is made from settings that came as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from optimizer.engines.contract import Engine
from optimizer.engines.factorial import Factorial, FactorialSettings
from optimizer.errors import SearchInvalid


def create(name: str, settings: Mapping[str, Any]) -> Engine:
    """Raises SearchInvalid for an unknown engine, an unknown setting or a value out of range."""
    if name not in ENGINES:
        raise SearchInvalid(f"engine: {name!r} is unknown; accepts {', '.join(ENGINES)}")
    return ENGINES[name](settings)


def _made_from(kind: type[Any], settings: Mapping[str, Any]) -> Any:
    known = [f.name for f in fields(kind)]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise SearchInvalid(
            f"engine_settings: {', '.join(unknown)} unknown; accepts {', '.join(known)}"
        )
    return kind(**settings)


def _factorial(settings: Mapping[str, Any]) -> Engine:
    return Factorial(_made_from(FactorialSettings, settings))


ENGINES: dict[str, Callable[[Mapping[str, Any]], Engine]] = {"factorial": _factorial}
"""Name -> constructor from settings."""
