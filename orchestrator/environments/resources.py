"""What a server of an environment version may use, as stored in `EnvironmentVersion.resources`.

The same words for each way of running a server: the sandbox, Docker and Azure each apply what they
can and say what they cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.environments.sandbox.policy import check_pattern

NetworkMode = Literal["none", "allow-list", "open"]
DEFAULT_SLOTS = 8


@dataclass(frozen=True)
class Network:
    """Where a server may connect to."""

    mode: NetworkMode = "none"
    allowed_hosts: tuple[str, ...] = ()
    """Names (`api.example.org`) or patterns (`*.example.org`, which leaves out `example.org`)."""


@dataclass(frozen=True)
class Resources:
    """Of one server, except `max_servers`."""

    slots: int | None = None
    """Episodes at a time on one server; None: what the kind declares."""
    max_servers: int = 1
    """How many servers may run side by side on one machine."""
    is_single_use: bool = False
    """A server of its own for every episode, for environments whose episodes share files."""
    memory_mb: int = 1024
    cpus: float = 1.0
    processes: int = 256
    disk_mb: int = 512
    network: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        if self.slots is not None and not 1 <= self.slots <= 1024:
            raise ValueError("slots must be between 1 and 1024")
        if not 1 <= self.max_servers <= 64:
            raise ValueError("max_servers must be between 1 and 64")
        if self.memory_mb < 32 or self.cpus <= 0 or self.processes < 1:
            raise ValueError("memory_mb must be at least 32, cpus above 0, processes at least 1")
        if self.network.mode not in ("none", "allow-list", "open"):
            raise ValueError("network.mode is none, allow-list or open")
        if self.network.mode == "allow-list" and not self.network.allowed_hosts:
            raise ValueError("network.mode allow-list needs allowed_hosts")
        for host in self.network.allowed_hosts:
            check_pattern(host)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Resources:
        """`ValueError` that names the field, for unknown names too."""
        known = set(cls.__dataclass_fields__)
        if unknown := set(value) - known:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}; known: {sorted(known)}")
        fields = dict(value)
        network = fields.pop("network", {})
        if unknown := set(network) - {"mode", "allowed_hosts"}:
            raise ValueError(f"network: unknown {', '.join(sorted(unknown))}")
        return cls(
            **fields,
            network=Network(
                mode=network.get("mode", "none"),
                allowed_hosts=tuple(network.get("allowed_hosts", ())),
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """Only what differs from the defaults."""
        default = Resources()
        names = [n for n in self.__dataclass_fields__ if n != "network"]
        value = {n: getattr(self, n) for n in names if getattr(self, n) != getattr(default, n)}
        if self.network != default.network:
            value["network"] = {
                "mode": self.network.mode,
                "allowed_hosts": list(self.network.allowed_hosts),
            }
        return value
