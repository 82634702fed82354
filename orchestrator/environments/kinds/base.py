"""The interface of a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from orchestrator.environments.episode import Action
from orchestrator.environments.servers.spec import ServerSpec

Segments = list[dict[str, str]]
"""Pieces of what an agent reads: `kind` (env_output, scaffold, warning) and `text`."""


Spec = Mapping[str, Any]
"""What a server needs to know of one task; for the terminal kind `TaskSpec.as_json()`."""


class Kind(Protocol):
    """See the module's text."""

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> ServerSpec:
        """How to run, or reach, a server for tasks with these specs.

        May write what the server needs below `data / name`.
        """

    def action_of(self, reply: str) -> Action:
        """An agent's reply as an action. What does not fit is refused later, by the schema."""

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        """What the agent reads of an observation. Never empty."""
