"""How agents act on servers that we do not know: by address, from a package, an image, a cloud.

The agent is told the server's schema of actions in words with an example, or is offered it as a
function; servers of MCP tools (whose schema is `call_tool`) are asked for their tools after reset
and each is offered. Kinds for such servers inherit `ForeignActions`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.environments.actions import Malformed, takes_tool_calls
from orchestrator.environments.episode import Action
from orchestrator.environments.kinds.acting import (
    Interface,
    ObjectInterface,
    Tool,
    ToolInterface,
    json_object,
    unfenced,
)
from orchestrator.environments.kinds.base import Segments

NOTHING = "(the environment showed nothing)"


class ForeignActions:
    """Everything of a kind that concerns the agent. Inherit it, or use its methods."""

    def interface(
        self, schema: Mapping[str, Any] | None, listed: Sequence[Mapping[str, Any]]
    ) -> Interface:
        """Tools as functions for servers of tools; else the schema."""
        if takes_tool_calls(schema):
            return ToolInterface([Tool.from_listed(entry) for entry in listed])
        return ObjectInterface(schema)

    def action_of(self, reply: str) -> Action:
        """The reply as a JSON object, a surrounding code fence removed; else the text itself,
        which is refused with the reason.
        """
        value = json_object(unfenced(reply))
        return value if isinstance(value, dict) else Malformed(reply, value.reason)

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        """What a tool answered; else the only text, or all fields as JSON."""
        if "tool_name" in observation and {"result", "error"} & set(observation):
            return [tool_segment(observation)]
        shown = {k: v for k, v in observation.items() if v not in (None, "", [], {})}
        if not shown:
            return [{"kind": "scaffold", "text": NOTHING}]
        if len(observation) == 1 and isinstance(text := next(iter(shown.values())), str):
            return [{"kind": "env_output", "text": text}]
        return [{"kind": "env_output", "text": json.dumps(observation, ensure_ascii=False)}]


def tool_segment(observation: Mapping[str, Any]) -> dict[str, str]:
    """The answer to a call: its text, its data as JSON, or why it failed."""
    error = observation.get("error")
    if isinstance(error, Mapping):
        kind, message = error.get("error_type") or "error", error.get("message") or ""
        return {"kind": "env_output", "text": f"error ({kind}): {message}"}
    return {"kind": "env_output", "text": _result_text(observation.get("result"))}


def _result_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, Mapping):
        content = result.get("content")
        if isinstance(content, list):
            texts = [
                str(part["text"])
                for part in content
                if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            ]
            others = len(content) - len(texts)
            remark = [f"({others} parts that are not text)"] if others else []
            if texts or others:
                return "\n".join([*texts, *remark])
        if result.get("data") is not None:
            data = result["data"]
            return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return json.dumps(result, ensure_ascii=False)
