"""What the events of a rollout carry. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.agents.types import Segment
from orchestrator.environments.admission import Usage
from orchestrator.environments.episode import Action
from orchestrator.events.services import NewEvent, storable
from orchestrator.runs.acting import Said, answer_in, form_of, text_in

KEPT_CHARS = 20_000
"""Longer texts are shortened in events, which is what grading reads; the action that was sent is
not.
"""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""What PostgreSQL refuses in JSON."""


def action_payload(step: int, said: Said, shown: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The first action of a turn carries what the turn has cost.

    `shown`: the action as the episode's event has it, plain JSON with its long texts cut.
    """
    action, completion = said.action, said.completion
    logprobs = completion.logprobs if completion is not None else ()
    return {
        "step": step,
        "text": kept(said.text),
        "form": form_of(action),
        "command": kept(text_in(action, "command")),
        "answer": kept(answer_in(action)),
        "tool": kept(text_in(action, "tool_name")),
        "arguments": _arguments(action, shown or {}),
        "tokens": completion.tokens_out if completion is not None else 0,
        "logprob": sum(logprobs) if logprobs else None,
        "latency_s": round(completion.latency_s, 3) if completion is not None else 0.0,
        "finish_reason": completion.finish_reason if completion is not None else "",
    }


def observation_payload(
    step: Mapping[str, Any], segments: Sequence[Segment], latency_s: float
) -> dict[str, Any]:
    """`step`: the payload of an episode's `step` event."""
    observation, is_cut = step["observation"], step["is_shortened"]
    return {
        "step": step["step"],
        "segments": [{"kind": s.kind, "text": kept(s.text)} for s in segments],
        "exit_status": whole_number(observation.get("exit_status")),
        "truncated": bool(observation.get("truncated")) or is_cut,
        "reward": step["reward"],
        "done": step["done"],
        "latency_s": round(latency_s, 3),
        "tool_error": step["tool_error"],
        "size_bytes": step["size_bytes"] if is_cut else None,
        "sha256": step["sha256"] if is_cut else "",
    }


def refused_payload(rejected: Mapping[str, Any]) -> dict[str, Any]:
    """An action that was not sent, as what the agent reads instead of an observation."""
    return {
        "step": rejected["step"],
        "segments": [{"kind": "warning", "text": f"({rejected['reason']})"}],
        "refused": True,
        "reward": None,
        "done": False,
    }


STATE_BYTES = 2**20
"""Of a reported final state; one that is larger is not kept, and says so."""
_NOT_REPORTED = frozenset({"episode_id", "step_count", "task"})


def final_payload(told: Mapping[str, Any]) -> dict[str, Any]:
    """What an environment reported of its end, as criteria read it; never shown to the agent."""
    scores = dict(told.get("scores") or {})
    if "error" in told:
        return {"components": scores, "state": {}, "error": kept(str(told["error"]))}
    state = {k: v for k, v in told.get("state", {}).items() if k not in _NOT_REPORTED}
    size_bytes = len(json.dumps(state, default=str))
    if size_bytes > STATE_BYTES:
        error = f"the final state takes {size_bytes:,} bytes; at most {STATE_BYTES:,} are kept"
        return {"components": scores, "state": {}, "error": error}
    return {"components": scores, "state": state, "error": ""}


def capacity_payload(usage: Usage) -> dict[str, Any]:
    """How full a run's servers are; `text` says it in words."""
    return {
        "in_use": usage.in_use,
        "slots": usage.slots,
        "waiting": usage.waiting,
        "servers": usage.servers,
        "max_servers": usage.max_servers,
        "is_starting": usage.is_starting,
        "text": usage.text,
    }


def _arguments(action: Action, shown: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool was called with, as it is read back: the log replaces what a database refuses."""
    arguments = shown.get("arguments") if text_in(action, "tool_name") is not None else None
    if not isinstance(arguments, Mapping) or not arguments:
        return {}
    kind = "action"
    kept_arguments: dict[str, Any] = json.loads(storable(NewEvent(kind, dict(arguments))))
    return kept_arguments


def whole_number(value: object) -> int | None:
    """A field of a foreign observation can be anything, NaN included, which no log can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def run_lengths(kinds: Sequence[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for kind in kinds:
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    return runs


def kept(text: str | None) -> str | None:
    """As the log keeps it, and as it is read back."""
    if text is None:
        return None
    if len(text) > KEPT_CHARS:
        text = f"{text[:KEPT_CHARS]}\n[shortened: {len(text)} characters in all]"
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub("\ufffd", text)
