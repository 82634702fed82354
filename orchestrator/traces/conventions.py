"""What a span says, by the attribute conventions in use: its kind, its name and its content. Pure.

Read are the GenAI semantic conventions of OpenTelemetry (attributes of today, `gen_ai.*.messages`;
the span events and `gen_ai.prompt`/`gen_ai.completion` before them), OpenInference (Phoenix),
OpenLLMetry (Traceloop) and MLflow. A span of none of them is a `span`. All attributes stay with the
event as they were sent, whatever is understood of them here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.traces.exact import is_deep

MODEL_CALL, TOOL_CALL = "model_call", "tool_call"
SPAN = "span"
Attributes = Mapping[str, Any]

_BY_OPERATION = {
    "chat": MODEL_CALL,
    "text_completion": MODEL_CALL,
    "completion": MODEL_CALL,
    "generate_content": MODEL_CALL,
    "embeddings": "embedding",
    "execute_tool": TOOL_CALL,
    "create_agent": "agent",
    "invoke_agent": "agent",
    "invoke_workflow": "chain",
    "retrieval": "retrieval",
}
"""`gen_ai.operation.name`, and `llm.request.type` before it."""
_BY_LOOK = {
    "llm": MODEL_CALL,
    "chat_model": MODEL_CALL,
    "tool": TOOL_CALL,
    "agent": "agent",
    "chain": "chain",
    "workflow": "chain",
    "task": "chain",
    "retriever": "retrieval",
    "reranker": "rerank",
    "embedding": "embedding",
    "guardrail": "guardrail",
    "evaluator": "score",
    "prompt": "prompt",
    "parser": "chain",
}
"""`openinference.span.kind`, `traceloop.span.kind`, `mlflow.spanType`, in small letters."""
_ANSWERS = (
    "gen_ai.output.messages",
    "gen_ai.completion",
    "output.value",
    "traceloop.entity.output",
    "mlflow.spanOutputs",
)
_RESULTS = ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
_ARGUMENTS = ("gen_ai.tool.call.arguments", "input.value", "tool.parameters")
_NAMES = ("gen_ai.tool.name", "tool.name", "gen_ai.agent.name", "agent.name")
_TOKENS_IN = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_TOKENS_OUT = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
)
_MOST_MESSAGES = 1_000
_DEEPEST = 400
"""Levels of JSON inside a text; below what an event may have."""
_MOST_TOKENS = 1_000_000_000


@dataclass(frozen=True)
class Said:
    kind: str
    name: str
    content: Any
    """A text where there is only text, else JSON; None for a span that says nothing."""
    tokens: tuple[int, int] = (0, 0)
    """That a model call read and wrote."""


def said_by(
    name: str, attributes: Attributes, events: Sequence[tuple[str, Attributes]] = ()
) -> Said:
    """`events`: name and attributes of what happened inside the span."""
    kind = _kind(attributes)
    shown = next((v for key in _NAMES if isinstance(v := attributes.get(key), str) and v), name)
    if kind == TOOL_CALL:
        return Said(kind, shown, _tool(attributes))
    content = _answer(attributes, events)
    if kind != MODEL_CALL:
        return Said(kind, shown, content)
    tokens = (_count(attributes, _TOKENS_IN), _count(attributes, _TOKENS_OUT))
    return Said(kind, name, content, tokens)


def _kind(attributes: Attributes) -> str:
    for key, kinds in (
        ("gen_ai.operation.name", _BY_OPERATION),
        ("openinference.span.kind", _BY_LOOK),
        ("traceloop.span.kind", _BY_LOOK),
        ("llm.request.type", _BY_OPERATION),
        ("mlflow.spanType", _BY_LOOK),
    ):
        value = attributes.get(key)
        if isinstance(value, str) and value:
            found = kinds.get(value.strip('"').lower())
            if found:
                return found
    if "gen_ai.system" in attributes and "gen_ai.request.model" in attributes:
        return MODEL_CALL
    return SPAN


def _count(attributes: Attributes, keys: Sequence[str]) -> int:
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, min(_MOST_TOKENS, value))
    return 0


def _tool(attributes: Attributes) -> Any:
    given = _first(attributes, _ARGUMENTS)
    result = _first(attributes, _RESULTS)
    if given is None or result is None:
        return given if result is None else result
    return {"arguments": given, "result": result}


def _first(attributes: Attributes, keys: Sequence[str]) -> Any:
    for key in keys:
        value = attributes.get(key)
        if value not in (None, ""):
            return _opened(value)
    return None


def _answer(attributes: Attributes, events: Sequence[tuple[str, Attributes]]) -> Any:
    for key in _ANSWERS:
        value = attributes.get(key)
        if value not in (None, ""):
            return _texts(_opened(value))
    for prefix, inner in (("llm.output_messages", ".message"), ("gen_ai.completion", "")):
        if messages := _numbered(attributes, prefix, inner):
            return _texts(messages)
    return _from_events(events)


def _from_events(events: Sequence[tuple[str, Attributes]]) -> Any:
    answers: list[Any] = []
    for name, attributes in events:
        if name == "gen_ai.choice":
            value = attributes.get("message", attributes.get("content"))
            if value is not None:
                answers.append(_opened(value))
        elif name in ("gen_ai.content.completion", "gen_ai.client.inference.operation.details"):
            value = attributes.get("gen_ai.completion", attributes.get("gen_ai.output.messages"))
            if value is not None:
                opened = _opened(value)
                answers += opened if isinstance(opened, list) else [opened]
    return _texts(answers) if answers else None


def _numbered(attributes: Attributes, prefix: str, inner: str) -> list[Any]:
    """Messages that are told apart by numbers in the keys: `gen_ai.completion.0.content`."""
    found: list[Any] = []
    while len(found) < _MOST_MESSAGES:
        start = f"{prefix}.{len(found)}{inner}."
        parts = {
            key[len(start) :]: value for key, value in attributes.items() if key.startswith(start)
        }
        if not parts:
            return found
        found.append(parts)
    return found


def _opened(value: Any) -> Any:
    """JSON inside a text is opened; a text that merely looks like it stays."""
    if isinstance(value, str) and value[:1] in ("{", "[") and not is_deep(value, _DEEPEST):
        try:
            return json.loads(value, parse_constant=_refuse)
        except ValueError:
            return value
    return value


def _refuse(token: str) -> Any:
    raise ValueError(token)


def _texts(value: Any) -> Any:
    """The text of messages that hold nothing else, else all that they hold."""
    messages = value if isinstance(value, list) else [value]
    found: list[str] = []
    for message in messages:
        text = _text(message)
        if text is None:
            return value
        found.append(text)
    return "\n\n".join(found)


def _text(message: Any) -> str | None:
    if isinstance(message, str):
        return message
    if not isinstance(message, dict) or message.get("tool_calls"):
        return None
    if any(key.startswith("tool_calls") for key in message):
        return None
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, list) or not parts:
        return None
    texts = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type", "text") != "text":
            return None
        text = part.get("content", part.get("text"))
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "\n".join(texts)
