"""Our own traces as ATIF documents (Agent Trajectory Interchange Format, Harbor's). Pure.

A document is a list of steps by `system`, `user` and `agent`; what an action brought stands in the
step of that action. Ours are linear: of a rollout that was attempted again only the attempt that
counts is told. What the format has no field for (verdicts, score state, number of the event in the
log) is under `extra.switchback`. Demonstrations of the harness are marked as copied context: nobody
should train on them as if they had been sampled here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

SCHEMA = "ATIF-v1.6"
OWN = "switchback"


class EventLike(Protocol):
    seq: int
    kind: str
    payload: Any
    at: datetime


@dataclass(frozen=True)
class Sampled:
    """The tokens of one reply of the model, as they were sampled."""

    ids: Sequence[int]
    logprobs: Sequence[float]


@dataclass(frozen=True)
class Subject:
    """The rollout that a document is about."""

    name: str
    """`session_id`: the same for every export of this rollout."""
    model: str
    harness: str
    """Short hash of the harness; the version of the agent."""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for `extra.switchback`."""


def to_atif(
    events: Iterable[EventLike], subject: Subject, sampled: Sequence[Sampled] = ()
) -> dict[str, Any]:
    """The document; of an empty trace one with a system step that says so.

    `sampled`: replies in order. Ids go with the actions only if there are as many, each as long as
    its action says; a wrong pairing would be worse than none.
    """
    told = _last_attempt(events)
    steps = _Steps(_paired(told, sampled))
    for event in told:
        steps.take(event)
    if not steps.steps:
        steps.add("system", "The rollout wrote no event.")
    agent: dict[str, Any] = {"name": "switchback", "version": subject.harness}
    if subject.model:
        agent["model_name"] = subject.model
    if steps.functions:
        agent["tool_definitions"] = steps.functions
    return {
        "schema_version": SCHEMA,
        "session_id": subject.name,
        "agent": agent,
        "steps": steps.steps,
        "final_metrics": {
            "total_prompt_tokens": subject.tokens_in,
            "total_completion_tokens": subject.tokens_out,
            "total_cost_usd": subject.cost_usd,
            "total_steps": len(steps.steps),
        },
        "extra": {OWN: {**subject.facts, **steps.facts}},
    }


def _last_attempt(events: Iterable[EventLike]) -> list[EventLike]:
    told: list[EventLike] = []
    for event in events:
        if event.kind == "rollout.restarted":
            told = []
        else:
            told.append(event)
    return told


def _paired(events: Sequence[EventLike], sampled: Sequence[Sampled]) -> dict[int, Sampled]:
    """By number of the event that carries the tokens of a reply."""
    carriers = [
        (event.seq, _of(event).get("tokens"))
        for event in events
        if event.kind in ("action", "skill.loaded", "skill.refused") and _of(event).get("tokens")
    ]
    if [n for _, n in carriers] != [len(reply.ids) for reply in sampled]:
        return {}
    return {seq: reply for (seq, _), reply in zip(carriers, sampled, strict=True)}


class _Steps:
    """Steps as they grow, event by event."""

    def __init__(self, sampled: Mapping[int, Sampled]) -> None:
        self._sampled = sampled
        self.steps: list[dict[str, Any]] = []
        self.functions: list[Any] = []
        self.facts: dict[str, Any] = {}

    def add(self, source: str, message: str, at: datetime | None = None, **fields: Any) -> None:
        step: dict[str, Any] = {"step_id": len(self.steps) + 1, "source": source}
        if at is not None:
            step["timestamp"] = at.isoformat().replace("+00:00", "Z")
        self.steps.append({**step, "message": message, **fields})

    def take(self, event: EventLike) -> None:
        payload = _of(event)
        match event.kind:
            case "rollout.started":
                self._started(event, payload)
            case "told":
                self.functions = list(payload.get("functions") or ())
                if text := _text(payload.get("text")):
                    self.add("system", text, event.at, extra=_own(event))
            case "action":
                self._action(event, payload)
            case "skill.loaded" | "skill.refused":
                self._skill(event, payload)
            case "observation":
                self._observation(event, payload)
            case "verdict":
                self.facts.setdefault("verdicts", []).append({"seq": event.seq, **payload})
            case "rollout.ended" | "rollout.judging":
                self.facts["ended"] = payload
            case "final_state":
                self.facts["final_state"] = payload
            case _:
                self.facts.setdefault("other_events", []).append(
                    {"seq": event.seq, "kind": event.kind, "payload": payload}
                )

    def _started(self, event: EventLike, payload: Mapping[str, Any]) -> None:
        for message in payload.get("messages") or ():
            role, content = _text(message.get("role")), _text(message.get("content"))
            if role == "system":
                self.add("system", content, event.at, extra=_own(event))
                continue
            source = "agent" if role == "assistant" else "user"
            own = _own(event, is_demonstration=True)
            self.add(source, content, event.at, is_copied_context=True, extra=own)
        self.add("user", _text(payload.get("prompt")), event.at, extra=_own(event))

    def _action(self, event: EventLike, payload: Mapping[str, Any]) -> None:
        name, arguments = _call(payload)
        fields: dict[str, Any] = {}
        if name:
            call = {"tool_call_id": f"call-{event.seq}", "function_name": name}
            fields["tool_calls"] = [{**call, "arguments": arguments}]
        self._say(event, payload, fields)

    def _skill(self, event: EventLike, payload: Mapping[str, Any]) -> None:
        """What the agent read of its harness; no environment took part."""
        arguments = {k: payload[k] for k in ("name", "file") if payload.get(k)}
        call = {"tool_call_id": f"call-{event.seq}", "function_name": "load_skill"}
        result = {"source_call_id": f"call-{event.seq}", "content": _text(payload.get("content"))}
        fields = {
            "tool_calls": [{**call, "arguments": arguments}],
            "observation": {"results": [result]},
        }
        self._say(event, payload, fields)

    def _say(self, event: EventLike, payload: Mapping[str, Any], fields: dict[str, Any]) -> None:
        if reasoning := _text(payload.get("reasoning")):
            fields["reasoning_content"] = reasoning
        if tokens := payload.get("tokens"):
            fields["metrics"] = {"completion_tokens": tokens}
            if reply := self._sampled.get(event.seq):
                fields["metrics"] |= {
                    "completion_token_ids": list(reply.ids),
                    "logprobs": list(reply.logprobs),
                }
        kept = {k: payload.get(k) for k in ("step", "form", "latency_s", "finish_reason")}
        self.add("agent", _text(payload.get("text")), event.at, **fields, extra=_own(event, **kept))

    def _observation(self, event: EventLike, payload: Mapping[str, Any]) -> None:
        segments = [one for one in payload.get("segments") or () if isinstance(one, dict)]
        text = "".join(_text(segment.get("text")) for segment in segments)
        kept = {k: v for k, v in payload.items() if k != "segments"}
        kept["segments"] = [[s.get("kind"), len(_text(s.get("text")))] for s in segments]
        last = self.steps[-1] if self.steps else None
        if last is None or last["source"] != "agent" or last.get("is_copied_context"):
            self.add("user", text, event.at, extra=_own(event, **kept))
            return
        calls = last.get("tool_calls") or ()
        source = {"source_call_id": calls[0]["tool_call_id"]} if calls else {}
        results = last.setdefault("observation", {"results": []})["results"]
        results.append({**source, "content": text})
        last["extra"][OWN].setdefault("observations", []).append({"seq": event.seq, **kept})


def _call(payload: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and arguments of what an action asks the environment for; no name for plain text."""
    if payload.get("form") == "call":
        arguments = payload.get("arguments")
        return _text(payload.get("tool")), arguments if isinstance(arguments, dict) else {}
    for name in ("command", "answer"):
        if payload.get("form") == name:
            return name, {name: _text(payload.get(name))}
    return "", {}


def _own(event: EventLike, **facts: Any) -> dict[str, Any]:
    return {OWN: {"seq": event.seq, **facts}}


def _of(event: EventLike) -> Mapping[str, Any]:
    return event.payload if isinstance(event.payload, dict) else {"value": event.payload}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
