"""The interface of a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from orchestrator.environments.episode import Action
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.spec import ServerSpec

Segments = list[dict[str, str]]
"""Pieces of what an agent reads: `kind` (env_output, scaffold, warning) and `text`."""


Spec = Mapping[str, Any]
"""What a server needs to know of one task; for the terminal kind `TaskSpec.as_json()`."""


class Kind(Protocol):
    """See the package's text."""

    @property
    def summary(self) -> str:
        """One sentence for whoever chooses a kind."""

    @property
    def source_fields(self) -> Sequence[Field]:
        """What the author says of the environment as a whole."""

    @property
    def task_fields(self) -> Sequence[Field]:
        """What the author says of a task beside prompt, split, group and difficulty."""

    @property
    def resets_by_key(self) -> bool:
        """Whether its server finds a task by key: its tasks are reset with `{"task": key}`."""

    def check_source(self, source: Mapping[str, Any]) -> None:
        """`ValueError` that names the field and the fix, for a source that no server can be run of.

        Quick: looks at the values, starts nothing.
        """

    def check_task(self, spec: Spec, reset: Mapping[str, Any]) -> None:
        """`ValueError` that names the field and the fix, for a task that cannot be served."""

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Spec],
        data: Path,
    ) -> ServerSpec:
        """How to run, or reach, a server for tasks with these specs.

        May write what the server needs below `data / name`. `ServerStartError` if it cannot be
        prepared.
        """

    def action_of(self, reply: str) -> Action:
        """An agent's reply as an action. What does not fit is refused later, by the schema."""

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        """What the agent reads of an observation. Never empty."""
