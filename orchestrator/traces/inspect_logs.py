"""Logs of Inspect (inspect_ai) as events from outside. Pure.

A sample in an epoch is a rollout. Its first event holds what belongs to all of it: the task, the
model and plan of the log, the sample's input, target, metadata, usage and limits. Then the messages
of the conversation as turns, calls of tools below the turn that made them, their results below the
call; then errors, limits and scores. Times and usage come from the transcript's events, texts that
the log keeps once under `attachments` are put back in their place. Requests as they went over the
wire, snapshots of state and spans are left out: the log has each message many times in them.

Format: `EvalLog` and `EvalSample` of inspect_ai 0.3.x; `.eval` is a zip with `header.json` (or,
while it was still running, `_journal/start.json`) and `samples/<id>_epoch_<n>.json`, `.json` is one
document with a list `samples`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.traces.exact import Number
from orchestrator.traces.foreign import HEAD, Event, NotReadable

INSPECT = "inspect"
_ROLES = {"system": "system", "user": "user", "assistant": "model_call", "tool": "observation"}
_MESSAGES = frozenset(("messages", "events", "events_data", "attachments", "scores", "timelines"))
_TOLD = frozenset(("info", "error", "sample_limit", "approval", "score_edit", "interrupt"))
"""Kinds of a transcript's events that the messages do not tell."""
_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{8,64})")
_LETTERS = {"C": "1", "P": "0.5", "I": "0", "N": "0"}
"""Correct, partial, incorrect, no answer."""


def is_inspect(value: Any) -> bool:
    """A whole log in JSON."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("eval"), dict)
        and "task" in value["eval"]
        and "version" in value
    )


def events_of_log(log: Mapping[str, Any]) -> list[list[Event]]:
    """Of each sample. Raises NotReadable."""
    samples = log.get("samples")
    if not isinstance(samples, list) or not samples:
        raise NotReadable("the log has no samples; it was written without them, or ended before")
    header = {key: value for key, value in log.items() if key != "samples"}
    return [events_of_sample(header, sample, f"samples[{i}]") for i, sample in enumerate(samples)]


def events_of_sample(header: Mapping[str, Any], sample: Any, where: str) -> list[Event]:
    """Raises NotReadable. `where`: names the sample in messages."""
    if not isinstance(sample, dict) or "id" not in sample or "epoch" not in sample:
        raise NotReadable(f"{where}: a sample is an object with id and epoch")
    messages = _objects(sample.get("messages") or [], f"{where}.messages")
    transcript = _objects(sample.get("events") or [], f"{where}.events")
    told = _Told(sample.get("attachments"), transcript)
    spec = header.get("eval")
    spec = spec if isinstance(spec, dict) else {}
    rest = {key: value for key, value in sample.items() if key not in _MESSAGES}
    name = _text(spec.get("task")) or "inspect"
    head: dict[str, Any] = {
        "id": HEAD,
        "kind": HEAD,
        "name": name,
        "data": {
            "format": INSPECT,
            "head": told.opened({"log": _short(header), "sample": rest}),
        },
    }
    head |= _times(sample.get("started_at"), sample.get("completed_at"))
    events = [head]
    for index, message in enumerate(messages):
        events += told.of_message(message, f"message-{index + 1}")
    events += told.rest()
    scores = sample.get("scores")
    for scorer, score in scores.items() if isinstance(scores, dict) else ():
        events.append(told.opened(_score(str(scorer), score)))
    rollout = f"{name}/{_text(sample['id'])}/{_text(sample['epoch'])} {_log_id(spec)}".rstrip()
    return [
        {"rollout": rollout, **event, "seq": Number(str(number))}
        for number, event in enumerate(events)
    ]


class _Told:
    """What one sample's transcript and attachments say of its messages."""

    def __init__(self, attachments: Any, transcript: Sequence[Mapping[str, Any]]) -> None:
        self._attachments = attachments if isinstance(attachments, dict) else {}
        self._transcript = transcript
        self._calls: dict[str, Mapping[str, Any]] = {}
        self._models: dict[str, Mapping[str, Any]] = {}
        for event in transcript:
            if event.get("event") == "tool":
                self._calls[_text(event.get("id"))] = event
            elif event.get("event") == "model" and (message := _message_of(event)):
                self._models[message] = event
        self._made: dict[str, str] = {}
        """Events of tool calls by the call's id."""

    def of_message(self, message: Mapping[str, Any], own: str) -> Iterator[Event]:
        role = _text(message.get("role"))
        rest = {
            key: value
            for key, value in message.items()
            if key not in ("role", "content", "tool_calls")
        }
        event: Event = {"id": own, "kind": _ROLES.get(role, role or "message")}
        if role == "tool":
            call = _text(message.get("tool_call_id"))
            if call in self._made:
                event["parent"] = self._made[call]
            if function := _text(message.get("function")):
                event["name"] = function
        event["content"] = _content(message.get("content"))
        if model := self._models.get(_text(message.get("id"))) if role == "assistant" else None:
            event |= _times(model.get("timestamp"), model.get("completed"))
            output = model.get("output")
            if isinstance(output, dict) and isinstance(output.get("usage"), dict):
                rest["usage"] = output["usage"]
        if rest:
            event["data"] = rest
        yield self.opened(event)
        calls = message.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else (), start=1):
            if isinstance(call, dict):
                yield self.opened(self._of_call(call, own, f"{own}/call-{number}"))

    def _of_call(self, call: Mapping[str, Any], parent: str, own: str) -> Event:
        call_id = _text(call.get("id"))
        self._made.setdefault(call_id, own)
        event: Event = {"id": own, "parent": parent, "kind": "tool_call"}
        if function := _text(call.get("function")):
            event["name"] = function
        event["content"] = call.get("arguments")
        rest = {k: v for k, v in call.items() if k not in ("function", "arguments")}
        if ran := self._calls.get(call_id):
            event |= _times(ran.get("timestamp"), ran.get("completed"))
            rest |= {k: ran[k] for k in ("error", "truncated", "working_time") if ran.get(k)}
        return {**event, "data": rest} if rest else event

    def rest(self) -> Iterator[Event]:
        """Events of the transcript that no message tells."""
        for number, event in enumerate(self._transcript, start=1):
            kind = event.get("event")
            if kind not in _TOLD:
                continue
            made: Event = {"id": f"event-{number}", "kind": kind}
            said = event.get("data", event.get("message", event.get("error")))
            if said is not None:
                made["content"] = said
            made |= _times(event.get("timestamp"), event.get("completed"))
            left = {k: v for k, v in event.items() if k not in ("event", "data", "timestamp")}
            yield self.opened({**made, "data": left} if left else made)

    def opened(self, value: Any) -> Any:
        """With attachments in the place of what stands for them."""
        if not self._attachments:
            return value
        if isinstance(value, str):
            return _ATTACHMENT.sub(self._attached, value) if "attachment://" in value else value
        if isinstance(value, dict):
            return {key: self.opened(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.opened(part) for part in value]
        return value

    def _attached(self, match: re.Match[str]) -> str:
        found = self._attachments.get(match[1])
        return found if isinstance(found, str) else match[0]


def _message_of(event: Mapping[str, Any]) -> str:
    """The id of the message that a call of a model gave."""
    output = event.get("output")
    choices = output.get("choices") if isinstance(output, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return _text(message.get("id")) if isinstance(message, dict) else ""


def _score(scorer: str, score: Any) -> Event:
    value = score.get("value") if isinstance(score, dict) else score
    event: Event = {"id": f"score-{scorer}", "kind": "score", "name": scorer, "content": score}
    number = _LETTERS.get(value, "") if isinstance(value, str) else ""
    if isinstance(value, Number):
        event["data"] = {"values": {scorer: value}}
    elif number:
        event["data"] = {"values": {scorer: Number(number)}}
    return event


def _content(content: Any) -> Any:
    """Text where there is only text; else its parts, reasoning and media among them."""
    if not isinstance(content, list):
        return content
    texts = [
        part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        for part in content
    ]
    if texts and all(isinstance(text, str) for text in texts):
        return "\n".join(str(text) for text in texts)
    return content


def _short(header: Mapping[str, Any]) -> dict[str, Any]:
    """Of the log what tells how a sample came to be, not the figures over all samples."""
    return {
        key: value
        for key, value in header.items()
        if key not in ("results", "stats", "reductions", "samples")
    }


def _log_id(spec: Mapping[str, Any]) -> str:
    return next(
        (text for key in ("eval_id", "run_id", "task_id") if (text := _text(spec.get(key)))), ""
    )


def _times(started: Any, ended: Any) -> dict[str, Any]:
    found = {"started_at": started, "ended_at": ended}
    return {name: value for name, value in found.items() if isinstance(value, str) and value}


def _objects(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise NotReadable(f"{where}: accepts a list of objects")
    return value


def _text(value: Any) -> str:
    if isinstance(value, Number):
        return value.token
    return value if isinstance(value, str) else ""
