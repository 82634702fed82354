"""An OpenEnv server by its address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.connection import Address
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.kinds.foreign import ForeignActions
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.url import DEFAULT_CAPACITY, UrlSpec


class UrlKind(ForeignActions):
    """An OpenEnv server that somebody else runs. Actions are JSON objects of its schema."""

    summary = "A server that somebody else runs."
    source_fields: Sequence[Field] = (
        Field("base_url", "Address", is_required=True, help="http://host:port of the server."),
    )
    task_fields: Sequence[Field] = ()
    resets_by_key = False

    def check_source(self, source: Mapping[str, Any]) -> None:
        Address(str(source.get("base_url", "")))

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        """A server of unknown kind: any parameters of its reset may be right."""

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> UrlSpec:
        return UrlSpec(
            name=name,
            base_url=str(source["base_url"]),
            capacity=resources.slots or DEFAULT_CAPACITY,
        )
