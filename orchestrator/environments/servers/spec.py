"""What a server is, and how one is asked for.

A specification is plain data: equal ones share a server. It makes the server that it describes, so
that the pool needs to know no kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

START_TIMEOUT_S = 60.0


class Server(Protocol):
    """A place where episodes can be opened. The shape of OpenEnv's `ContainerProvider`."""

    capacity: int
    """Episodes at a time."""

    @property
    def is_alive(self) -> bool:
        """Whether it could serve an episode now, as far as this process knows."""

    @property
    def base_url(self) -> str:
        """Where episodes are opened: http(s)://… or unix://…. `ServerStartError` if not started."""

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start it and return its base address."""

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when an episode can be reset. `ServerStartError` if it does not come to that."""

    def stop_container(self) -> None:
        """End it. Safe to call twice."""

    def close(self) -> None:
        """End it and free what it held."""


@runtime_checkable
class SaysWhyItEnded(Protocol):
    """A server that knows more than that its connection was lost."""

    def last_words(self) -> str:
        """A sentence on its end for people; empty if it has not ended, or nobody knows why.

        May block for half a second.
        """


class ServerSpec(Protocol):
    """How to run, or reach, a server. Frozen."""

    @property
    def name(self) -> str:
        """Of the environment version; names the server's folder."""

    @property
    def capacity(self) -> int:
        """Episodes at a time on one server."""

    @property
    def max_servers(self) -> int:
        """How many may run side by side on one machine."""

    @property
    def is_single_use(self) -> bool:
        """Whether each episode gets a server of its own, for those whose episodes share files."""

    @property
    def is_ours(self) -> bool:
        """Whether the server is started, stopped and replaced here."""

    @property
    def digest(self) -> str:
        """Of everything that the specification says."""

    def make(self, folder: Path) -> Server:
        """The server, not started. `folder` is its own, for logs and sockets."""
