"""An OpenEnv server by its address."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.connection import Address
from orchestrator.environments.episode import Action
from orchestrator.environments.kinds.base import Segments
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.url import DEFAULT_CAPACITY, UrlSpec


class UrlKind:
    """An OpenEnv server that somebody else runs. Actions are JSON objects of its schema."""

    summary = "A server that somebody else runs."
    source_fields: Sequence[Field] = (
        Field("base_url", "Address", is_required=True, help="http://host:port of the server."),
    )
    task_fields: Sequence[Field] = ()

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

    def action_of(self, reply: str) -> Action:
        """The reply as a JSON object, a surrounding code fence removed; else the text itself."""
        text = re.sub(r"^```\w*\s*|\s*```$", "", reply.strip())
        try:
            action = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return reply
        return action if isinstance(action, dict) else reply

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        """The only text, or all fields as JSON: everything comes from the environment."""
        if len(observation) == 1 and isinstance(text := next(iter(observation.values())), str):
            return [{"kind": "env_output", "text": text}]
        return [{"kind": "env_output", "text": json.dumps(observation, ensure_ascii=False)}]


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
