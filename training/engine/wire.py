"""What goes over the wire: fields of requests, checked, and the shape of answers.

A field that is missing or of another type is a `BadField`, which names it. Types are exact: `"8"`
is no number and `true` no integer, because a client that errs should hear of it. Options that
would bend the distribution without a trace in the recorded log-probabilities are accepted with
their neutral value only.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from starlette.requests import Request

from training.engine.scheduler import SampleResult
from training.tokenizer import BRIDGE_KINDS, Segment

MAX_BODY_BYTES = 4_000_000
MAX_CHOICES = 64
DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
DEFAULT_MAX_TOKENS = 128
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "stream": (None, False),
    "echo": (None, False),
    "best_of": (None, 1),
    "tools": (None, []),
    "suffix": (None, ""),
}
"options that are accepted with these values only"


class BadField(ValueError):
    """A field of the request is missing or invalid."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(param, message)
        self.param, self.message = param, message


@dataclass(frozen=True)
class Options:
    """The fields that both completion routes share."""

    model: str
    max_tokens: int
    temperature: float
    seed: int | None
    stop: tuple[str, ...]
    choices: int
    timeout_s: float
    wants_tokens: bool


def choice_seed(seed: int | None, index: int) -> int | None:
    """Choice 0 is what `n` = 1 gives; the others are far apart from it and from other seeds'
    choices."""
    return seed if seed is None or index == 0 else seed + (index << 64)


def choice_of(result: SampleResult, wants_tokens: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "finish_reason": result.finish_reason,
        "stop_reason": result.stop_reason,
        "sampled_eos": result.sampled_eos,
        "weight_version": result.weight_version,
        "logprobs": None,
    }
    if wants_tokens:
        choice["token_ids"] = result.token_ids
        choice["logprobs"] = {
            "token_logprobs": result.token_logprobs,
            "sampling_logprobs": result.sampling_logprobs,
        }
    return choice


def answer(
    prefix: str,
    kind: str,
    options: Options,
    ids: Sequence[int],
    results: Sequence[SampleResult],
    choices: list[dict[str, Any]],
) -> dict[str, Any]:
    sampled = sum(len(result.token_ids) for result in results)
    return {
        "id": f"{prefix}-{uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": options.model,
        "choices": choices,
        "usage": {
            "prompt_tokens": len(ids),
            "completion_tokens": sampled,
            "total_tokens": len(ids) + sampled,
            "prompt_tokens_details": {"cached_tokens": results[0].reused_tokens},
        },
    }


def options_of(body: Mapping[str, Any]) -> Options:
    for name, accepted in NEUTRAL.items():
        if body.get(name) not in accepted:
            raise BadField(
                name,
                f"{body[name]!r} is not supported; leave it out. Sampling is from the full "
                "distribution, so that the recorded log-probabilities are exact",
            )
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(text, str) for text in stop):
        raise BadField("stop", "must be a text or a list of texts")
    if len(stop) > 16 or any(len(text) > 200 for text in stop):
        raise BadField("stop", "at most 16 texts of at most 200 characters")
    choices = field_of(body, "n", int, 1)
    if not 1 <= choices <= MAX_CHOICES:
        raise BadField("n", f"must lie in 1..{MAX_CHOICES}")
    timeout_s = field_of(body, "timeout_s", float, DEFAULT_TIMEOUT_S)
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise BadField("timeout_s", f"must lie in 0..{MAX_TIMEOUT_S:g}")
    max_tokens = body.get("max_completion_tokens", body.get("max_tokens"))
    logprobs = body.get("logprobs")
    return Options(
        model=field_of(body, "model", str, None),
        max_tokens=field_of({"max_tokens": max_tokens}, "max_tokens", int, DEFAULT_MAX_TOKENS),
        temperature=field_of(body, "temperature", float, 1.0),
        seed=None if body.get("seed") is None else field_of(body, "seed", int, 0),
        stop=tuple(stop),
        choices=choices,
        timeout_s=timeout_s,
        wants_tokens=bool(body.get("return_token_ids")) or logprobs not in (None, False),
    )


def field_of(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """A field of the given type; a default of None makes it required."""
    value = body.get(name)
    if value is None:
        value = default
    if value is None:
        raise BadField(name, "is missing")
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise BadField(name, f"must be of type {kind.__name__}")
    return value


def messages_of(body: Mapping[str, Any]) -> list[dict[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadField("messages", "must be a list of at least one message")
    found = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise BadField(f"messages[{index}]", "must be an object")
        content = message.get("content")
        if isinstance(content, list):
            texts = [part.get("text") if isinstance(part, dict) else None for part in content]
            known = [text for text in texts if isinstance(text, str)]
            content = "".join(known) if len(known) == len(texts) else None
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            raise BadField(f"messages[{index}]", "needs role and content, both texts")
        found.append({"role": message["role"], "content": content})
    return found


def segments_of(bridge: Mapping[str, Any]) -> list[Segment]:
    segments = bridge.get("segments")
    if not isinstance(segments, list):
        raise BadField("bridge.segments", "must be a list")
    found = []
    for index, segment in enumerate(segments):
        place = f"bridge.segments[{index}]"
        if not isinstance(segment, dict) or not isinstance(segment.get("text"), str):
            raise BadField(place, "needs kind and text")
        if segment.get("kind") not in BRIDGE_KINDS:
            raise BadField(place, f"kind must be one of {', '.join(sorted(BRIDGE_KINDS))}")
        found.append(Segment(segment["kind"], segment["text"]))
    return found


class TooLarge(ValueError):
    """The body exceeds MAX_BODY_BYTES."""


async def read_body(request: Request) -> dict[str, Any]:
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise TooLarge(f"the body exceeds {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    try:
        body = json.loads(b"".join(chunks))
    except ValueError as error:
        raise BadField("body", f"is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadField("body", "must be a JSON object")
    return body
