"""A server that somebody else runs: the same interface, nothing to start."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.environments.servers.readiness import until_ready
from orchestrator.environments.servers.spec import START_TIMEOUT_S

DEFAULT_CAPACITY = 64
"""Assumed where nobody says; the server refuses what is above its own."""


@dataclass(frozen=True)
class UrlSpec:
    """Where it is. A reset with `probe` must have worked when it was connected; it is not tried
    again before every run: each episode finds out for itself and says what it found.
    """

    name: str
    base_url: str
    capacity: int = DEFAULT_CAPACITY
    probe: Mapping[str, Any] = field(default_factory=dict)

    max_servers = 1
    is_single_use = False
    is_ours = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def make(self, folder: Path) -> UrlServer:
        return UrlServer(self.base_url, self.capacity, self.probe)


class UrlServer:
    """A server that somebody else runs."""

    is_alive = True
    """As far as anyone can say before an episode is tried."""

    def __init__(
        self, base_url: str, capacity: int, probe: Mapping[str, Any] | None = None
    ) -> None:
        self.base_url = base_url
        self.capacity = capacity
        self._probe = dict(probe or {})

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        return self.base_url

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        asyncio.run(until_ready(base_url, self._probe, timeout_s, lambda: True))

    def stop_container(self) -> None:
        """Nothing: it is not ours."""

    def close(self) -> None:
        """Nothing: it is not ours."""
