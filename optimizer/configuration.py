"""harness.yaml: which model, how it samples, how long it may act, which demonstrations it is told.

    model: local/switchback-small
    sampling: {temperature: 0.0, max_tokens: 256, stop: [], top_p: 1.0}
    limits: {max_steps: 8}
    demonstrations: {pick: nearest, k: 4}

Every field may be left out. Unknown fields are refused, because a typing error that means "default"
would be optimised around for hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from optimizer.canonical import read_yaml, yaml_text
from optimizer.errors import HarnessInvalid

CONFIG = "harness.yaml"


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.0
    """0 is greedy."""
    max_tokens: int = 256
    """Tokens of one reply."""
    stop: tuple[str, ...] = ()
    top_p: float = 1.0


@dataclass(frozen=True)
class Limits:
    max_steps: int = 8
    """Exchanges with the environment in one rollout."""


class Pick(StrEnum):
    ALL = "all"
    """Every task is told all demonstrations, in their order."""
    NEAREST = "nearest"
    """A task is told the k whose task is worded most like its own, the nearest last."""


@dataclass(frozen=True)
class Picking:
    pick: Pick = Pick.ALL
    k: int = 4
    """Demonstrations told to one task at most; `all` does not look at it."""


def parse_config(text: str) -> dict[str, Any]:
    """What `read_config` returns, from the text of the file. Raises HarnessInvalid."""
    try:
        values = read_yaml(text)
    except ValueError as error:
        raise HarnessInvalid(f"{CONFIG}: not YAML: {error}") from error
    return read_config({} if values is None else values)


def read_config(values: Any) -> dict[str, Any]:
    """Model, sampling, limits and picking from the parsed file. Raises HarnessInvalid."""
    _known(values, ("model", "sampling", "limits", "demonstrations"), "")
    model = values.get("model", "")
    if not isinstance(model, str):
        raise HarnessInvalid(f"{CONFIG}: model accepts text")
    return {
        "model": model,
        "sampling": _sampling(_part(values, "sampling")),
        "limits": _limits(_part(values, "limits")),
        "picking": _picking(_part(values, "demonstrations")),
    }


def config_text(values: Mapping[str, Any]) -> str:
    return yaml_text(values)


def _sampling(values: Any) -> Sampling:
    _known(values, ("temperature", "max_tokens", "stop", "top_p"), "sampling.")
    stop = values.get("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(item, str) and item for item in stop):
        raise HarnessInvalid(f"{CONFIG}: sampling.stop accepts a list of texts")
    return Sampling(
        temperature=_number(values, "sampling.temperature", 0.0, 0.0, 2.0),
        max_tokens=_whole(values, "sampling.max_tokens", 256, 1, 1_000_000),
        stop=tuple(stop),
        top_p=_number(values, "sampling.top_p", 1.0, 0.01, 1.0),
    )


def _limits(values: Any) -> Limits:
    _known(values, ("max_steps",), "limits.")
    return Limits(_whole(values, "limits.max_steps", 8, 1, 10_000))


def _picking(values: Any) -> Picking:
    _known(values, ("pick", "k"), "demonstrations.")
    pick = values.get("pick", Pick.ALL)
    if pick not in list(Pick):
        raise HarnessInvalid(
            f"{CONFIG}: demonstrations.pick is {pick!r}; accepts {', '.join(Pick)}"
        )
    return Picking(Pick(pick), _whole(values, "demonstrations.k", Picking.k, 1, 1_000))


def _part(values: Mapping[str, Any], name: str) -> Any:
    """A mapping that may be left out or empty."""
    found = values.get(name)
    return {} if found is None else found


def _known(values: Any, accepted: Sequence[str], at: str) -> None:
    if not isinstance(values, dict):
        raise HarnessInvalid(f"{CONFIG}: {at.rstrip('.') or 'the file'} accepts fields")
    for key in values:
        if key not in accepted:
            raise HarnessInvalid(f"{CONFIG}: {at}{key} is unknown; accepts {', '.join(accepted)}")


def _whole(values: Mapping[str, Any], path: str, default: int, low: int, high: int) -> int:
    return int(_number(values, path, default, low, high, whole=True))


def _number(
    values: Mapping[str, Any],
    path: str,
    default: float,
    low: float,
    high: float,
    *,
    whole: bool = False,
) -> float:
    value = values.get(path.rsplit(".", 1)[-1], default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (whole and value != int(value)):
        kind = "whole numbers" if whole else "numbers"
        raise HarnessInvalid(f"{CONFIG}: {path} is {value!r}; accepts {kind} {low:g} to {high:g}")
    return float(value)
