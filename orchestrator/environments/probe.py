"""What can be said of a server before it is used: does an episode start, does a seed matter.

`/health` proves nothing (servers answer healthy whose every session fails), so readiness is a real
connect, reset and close. The seed is judged by two fresh sessions with one seed and a third with
another; observations are compared without metadata and without fields that name the episode.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.environments.errors import EpisodeError
from orchestrator.environments.session import EpisodeSession, EpisodeSettings

_IDENTITY_FIELDS = {"seed", "episode_id", "session_id"}


class SeedEffect(StrEnum):
    """What a seed does to the first observation."""

    HONOURED = "honoured"
    """The same seed gives the same start, another seed another one."""
    IGNORED = "ignored"
    """Another seed changes nothing, or the same seed repeats nothing."""
    UNKNOWN = "unknown"
    """It was not possible to tell."""


@dataclass(frozen=True)
class Probe:
    """The result. `is_usable` false: `message` says why no episode starts."""

    is_usable: bool
    message: str
    reset_ms: float | None
    seed: SeedEffect
    is_random: bool
    """The same seed gave different starts: results are not reproducible."""


async def probe(
    base_url: str,
    *,
    reset: Mapping[str, Any] | None = None,
    settings: EpisodeSettings | None = None,
) -> Probe:
    """Three short episodes without a step. Faults are the result; `ValueError` for the address."""
    settings = settings or EpisodeSettings(slot_wait_s=5)
    starts: list[dict[str, Any]] = []
    reset_ms = None
    for seed in (7, 7, 8):
        started_at = time.monotonic()
        try:
            async with EpisodeSession.open(base_url, settings) as session:
                observation = await session.reset(**{**(reset or {}), "seed": seed})
        except EpisodeError as exc:
            is_usable = bool(starts)
            return Probe(is_usable, exc.message, reset_ms, SeedEffect.UNKNOWN, is_random=False)
        reset_ms = reset_ms or (time.monotonic() - started_at) * 1000
        fields = observation.fields
        starts.append({k: v for k, v in fields.items() if k not in _IDENTITY_FIELDS})
    is_random = starts[0] != starts[1]
    is_honoured = not is_random and starts[0] != starts[2]
    seed_effect = SeedEffect.HONOURED if is_honoured else SeedEffect.IGNORED
    return Probe(True, "", reset_ms, seed_effect, is_random)
