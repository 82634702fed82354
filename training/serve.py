"""The model server: an OpenAI-compatible API over one base model and its adapters.

`python -m training.serve --model DIR --name NAME --port N`. Loopback by default. JSON in, JSON
out:

    GET    /health                 200 when the model is loaded; process id and counters
    GET    /v1/models              base model and adapters
    POST   /v1/adapters            {"name", "path"}: load a LoRA folder in PEFT format
    DELETE /v1/adapters/<name>
    POST   /v1/completions         prompt: text or token ids
    POST   /v1/chat/completions    messages, through the model's chat template
    POST   /v1/tokenize            messages, or the bridge between two actions, with a kind per
    token

Both completion routes take the standard `model, max_tokens, temperature, seed, stop, n` and
`timeout_s`; `logprobs` or `return_token_ids` add per choice the sampled `token_ids`,
`logprobs.token_logprobs` (temperature 1) and `logprobs.sampling_logprobs` (at the sampling
temperature), both over the full vocabulary. Every choice names its `weight_version`. Options that
would change the distribution without a trace in those numbers (`top_p`, `top_k`, penalties,
`logit_bias`) are refused unless neutral. There is no streaming.

Errors have OpenAI's shape `{"error": {"message", "type", "param", "code"}}`: 400 bad request, 404
unknown model or adapter, 409 adapter conflict, 413 body too large, 429 queue full (with
Retry-After), 503 sampler failed or closing, 504 deadline. A caller that hangs up frees its rows
at the next step. SIGTERM ends after the answers in flight, at most GRACE_S. The log is JSON lines
on stderr and holds no prompt text.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import logging
import math
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from training.engine.adapters import AdapterError
from training.engine.scheduler import (
    AdapterConflict,
    DeadlineExceeded,
    Limits,
    RequestRefused,
    Sampler,
    SamplerBusy,
    SampleRequest,
    SampleResult,
    SamplerFault,
    UnknownModel,
)
from training.tokenizer import BRIDGE_KINDS, Segment, TemplateMismatch, TokenSpans

MAX_BODY_BYTES = 4_000_000
MAX_CHOICES = 64
DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
DEFAULT_MAX_TOKENS = 128
GRACE_S = 5
"seconds that answers in flight have after SIGTERM"
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

log = logging.getLogger("training.serve")


class BadField(ValueError):
    """A field of the request is missing or invalid."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(param, message)
        self.param, self.message = param, message


@dataclass(frozen=True)
class _Options:
    """The fields that both completion routes share."""

    model: str
    max_tokens: int
    temperature: float
    seed: int | None
    stop: tuple[str, ...]
    choices: int
    timeout_s: float
    wants_tokens: bool


def create_app(sampler: Sampler) -> Starlette:
    """The ASGI application; closes the sampler when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(sampler.close)

    server = _Server(sampler)
    return Starlette(
        routes=[
            Route("/health", server.health),
            Route("/v1/models", server.models),
            Route("/v1/adapters", _guarded(server.add_adapter), methods=["POST"]),
            Route("/v1/adapters/{name}", _guarded(server.remove_adapter), methods=["DELETE"]),
            Route("/v1/completions", _guarded(server.completions), methods=["POST"]),
            Route("/v1/chat/completions", _guarded(server.chat), methods=["POST"]),
            Route("/v1/tokenize", _guarded(server.tokenize), methods=["POST"]),
        ],
        lifespan=lifespan,
    )


class _Server:
    """The routes."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._started_at = time.time()

    async def health(self, request: Request) -> Response:
        sampler = self._sampler
        return JSONResponse(
            {
                "status": "ok",
                "model": sampler.name,
                "pid": os.getpid(),
                "started_at": self._started_at,
                "context": sampler.context,
                "counters": asdict(sampler.counters),
            }
        )

    async def models(self, request: Request) -> Response:
        base = {"id": self._sampler.name, "object": "model", "owned_by": "local"}
        adapters = [
            {
                "id": adapter.name,
                "object": "model",
                "owned_by": "local",
                "parent": self._sampler.name,
                "path": adapter.path,
            }
            for adapter in self._sampler.adapters()
        ]
        return JSONResponse({"object": "list", "data": [base, *adapters]})

    async def add_adapter(self, request: Request) -> Response:
        body = await _body(request)
        name = _field(body, "name", str, None)
        path = _field(body, "path", str, None)
        adapter = await asyncio.to_thread(self._sampler.add_adapter, name=name, path=Path(path))
        return JSONResponse({"id": adapter.name, "path": adapter.path}, status_code=201)

    async def remove_adapter(self, request: Request) -> Response:
        name = request.path_params["name"]
        if not self._sampler.remove_adapter(name):
            return _error(404, f"no adapter {name!r} is loaded", code="adapter_not_found")
        return Response(status_code=204)

    async def completions(self, request: Request) -> Response:
        body = await _body(request)
        options = _options(body)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            ids = self._sampler.tokenizer.encode(prompt, special=True)
        elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
            ids = prompt
        else:
            raise BadField("prompt", "must be a text or a list of token ids")
        results = await self._sample(request, options, ids)
        choices = [
            {"index": index, "text": result.text, **_choice(result, options.wants_tokens)}
            for index, result in enumerate(results)
        ]
        return JSONResponse(_answer("cmpl", "text_completion", options, ids, results, choices))

    async def chat(self, request: Request) -> Response:
        body = await _body(request)
        options = _options(body)
        spans = self._sampler.tokenizer.encode_messages(_messages(body))
        results = await self._sample(request, options, spans.ids)
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": result.text},
                **_choice(result, options.wants_tokens),
            }
            for index, result in enumerate(results)
        ]
        answer = _answer("chatcmpl", "chat.completion", options, spans.ids, results, choices)
        if options.wants_tokens:
            answer["prompt_token_ids"] = spans.ids
            answer["prompt_token_kinds"] = spans.kinds
        return JSONResponse(answer)

    async def tokenize(self, request: Request) -> Response:
        body = await _body(request)
        tokenizer = self._sampler.tokenizer
        spans: TokenSpans
        if "bridge" in body:
            bridge = body["bridge"]
            if not isinstance(bridge, dict):
                raise BadField("bridge", "must be an object")
            spans = tokenizer.encode_bridge(
                _segments(bridge),
                sampled_eos=_field(bridge, "sampled_eos", bool, None),
                role=_field(bridge, "role", str, "user"),
            )
        elif "messages" in body:
            opens = _field(body, "add_generation_prompt", bool, True)
            spans = tokenizer.encode_messages(_messages(body), add_generation_prompt=opens)
        else:
            raise BadField("messages", "give messages or bridge")
        return JSONResponse({"ids": spans.ids, "kinds": spans.kinds})

    async def _sample(
        self, request: Request, options: _Options, ids: list[int]
    ) -> list[SampleResult]:
        """The choices of one call. Their rows are dropped if the caller hangs up."""
        rows = [
            SampleRequest(
                model=options.model,
                prompt_ids=tuple(ids),
                max_tokens=options.max_tokens,
                temperature=options.temperature,
                seed=_choice_seed(options.seed, index),
                stop=options.stop,
                deadline_s=options.timeout_s,
            )
            for index in range(options.choices)
        ]
        futures = self._sampler.submit(*rows)
        work = asyncio.ensure_future(_all(futures))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise _CallerGone
            return work.result()
        finally:
            gone.cancel()
            work.cancel()
            for future in futures:
                future.cancel()


class _CallerGone(Exception):
    """The caller closed the connection; nobody reads an answer."""


async def _all(futures: Sequence[Future[SampleResult]]) -> list[SampleResult]:
    return [await asyncio.wrap_future(future) for future in futures]


async def _disconnected(request: Request) -> None:
    # The body has been read, so the next message can only be the end of the connection.
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _choice_seed(seed: int | None, index: int) -> int | None:
    """Choice 0 is what `n` = 1 gives; the others are far apart from it and from other seeds'
    choices."""
    return seed if seed is None or index == 0 else seed + (index << 64)


def _choice(result: SampleResult, wants_tokens: bool) -> dict[str, Any]:
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


def _answer(
    prefix: str,
    kind: str,
    options: _Options,
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


def _options(body: Mapping[str, Any]) -> _Options:
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
    choices = _field(body, "n", int, 1)
    if not 1 <= choices <= MAX_CHOICES:
        raise BadField("n", f"must lie in 1..{MAX_CHOICES}")
    timeout_s = _field(body, "timeout_s", float, DEFAULT_TIMEOUT_S)
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise BadField("timeout_s", f"must lie in 0..{MAX_TIMEOUT_S:g}")
    max_tokens = body.get("max_completion_tokens", body.get("max_tokens"))
    logprobs = body.get("logprobs")
    return _Options(
        model=_field(body, "model", str, None),
        max_tokens=_field({"max_tokens": max_tokens}, "max_tokens", int, DEFAULT_MAX_TOKENS),
        temperature=_field(body, "temperature", float, 1.0),
        seed=None if body.get("seed") is None else _field(body, "seed", int, 0),
        stop=tuple(stop),
        choices=choices,
        timeout_s=timeout_s,
        wants_tokens=bool(body.get("return_token_ids")) or logprobs not in (None, False),
    )


def _field(body: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
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


def _messages(body: Mapping[str, Any]) -> list[dict[str, str]]:
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


def _segments(bridge: Mapping[str, Any]) -> list[Segment]:
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


class _TooLarge(ValueError):
    """The body exceeds MAX_BODY_BYTES."""


async def _body(request: Request) -> dict[str, Any]:
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _TooLarge(f"the body exceeds {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    try:
        body = json.loads(b"".join(chunks))
    except ValueError as error:
        raise BadField("body", f"is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadField("body", "must be a JSON object")
    return body


Handler = Callable[[Request], Awaitable[Response]]


def _guarded(handler: Handler) -> Handler:
    """One place that turns errors into answers, and logs one line per call."""

    async def guarded(request: Request) -> Response:
        begin = time.monotonic()
        response = await _answered(handler, request)
        log.info(
            "request",
            extra={
                "fields": {
                    "method": request.method,
                    "path": request.url.path,
                    "status": response.status_code,
                    "duration_ms": round((time.monotonic() - begin) * 1000),
                }
            },
        )
        return response

    return guarded


async def _answered(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except BadField as error:
        return _error(400, f"{error.param}: {error.message}", param=error.param)
    except UnknownModel as error:
        return _error(404, str(error), param="model", code="model_not_found")
    except (RequestRefused, AdapterError, TemplateMismatch) as error:
        return _error(400, str(error))
    except AdapterConflict as error:
        return _error(409, str(error), code="adapter_conflict")
    except _TooLarge as error:
        return _error(413, str(error))
    except SamplerBusy as error:
        return _error(429, str(error), code="queue_full", headers={"Retry-After": "1"})
    except DeadlineExceeded as error:
        return _error(504, str(error), code="deadline_exceeded")
    except SamplerFault as error:
        return _error(503, str(error), code="sampler_fault", headers={"Retry-After": "1"})
    except _CallerGone:
        return Response(status_code=499)
    except Exception:  # the boundary of the server: recorded here, answered in the API's shape
        log.exception("request failed", extra={"fields": {"path": request.url.path}})
        return _error(500, "internal error; the server's log has the reason", code="internal")


def _error(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)


class _JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _end_with_parent(parent: int) -> None:
    """Asks the kernel for SIGTERM when the parent dies (Linux); exits if it is dead already."""
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the parent process is gone")


def _return_freed_memory() -> None:
    """Gives large blocks back to the system when freed (glibc).

    Otherwise glibc raises its threshold to 32 MB after the first large block, and the caches of
    coming and going rows leave holes: 300 MB after a few hundred requests.
    """
    m_mmap_threshold = -3
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(m_mmap_threshold, 1 << 20)


def main(arguments: list[str] | None = None) -> int:
    parent = os.getppid()
    parser = argparse.ArgumentParser(prog="training.serve")
    parser.add_argument("--model", type=Path, required=True, help="prepared model folder")
    parser.add_argument("--name", required=True, help="name of the base model in requests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1, help="threads of the arithmetic")
    parser.add_argument("--max-rows", type=int, default=Limits.max_rows)
    parser.add_argument("--max-waiting", type=int, default=Limits.max_waiting)
    parser.add_argument("--max-adapters", type=int, default=Limits.max_adapters)
    parser.add_argument("--kv-tokens", type=int, default=Limits.kv_tokens)
    parser.add_argument(
        "--detached", action="store_true", help="live on when the parent process ends"
    )
    options = parser.parse_args(arguments)
    _log_to_stderr()
    if not options.detached:
        _end_with_parent(parent)
    # One compiled kernel per number of tokens; the default of 1024 of them takes 100 MB.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    _return_freed_memory()
    torch.set_num_threads(options.threads)
    limits = Limits(
        max_rows=options.max_rows,
        max_waiting=options.max_waiting,
        max_adapters=options.max_adapters,
        kv_tokens=options.kv_tokens,
    )
    begin = time.monotonic()
    try:
        sampler = Sampler(options.model, name=options.name, limits=limits)
    except (OSError, ValueError) as error:
        print(f"error: cannot load the model in {options.model}: {error}", file=sys.stderr)
        return 1
    seconds = round(time.monotonic() - begin, 2)
    log.info("model loaded", extra={"fields": {"model": options.name, "duration_s": seconds}})
    uvicorn.run(
        create_app(sampler),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=60,
        backlog=1024,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
