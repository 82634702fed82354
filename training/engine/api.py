"""The routes of the model server and the one place that turns errors into answers.

Owns no state but the sampler. A caller that hangs up frees its rows: the wait for the result runs
beside a wait for the end of the connection. Fields and shapes are in `wire.py`, the process
around it in `training/serve.py`, which lists the routes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from training.engine.adapters import AdapterError
from training.engine.scheduler import (
    AdapterConflict,
    Counters,
    DeadlineExceeded,
    RequestRefused,
    SamplerBusy,
    SampleRequest,
    SampleResult,
    SamplerFault,
    UnknownModel,
)
from training.engine.wire import (
    BadField,
    Options,
    TooLarge,
    answer,
    choice_of,
    choice_seed,
    field_of,
    messages_of,
    options_of,
    read_body,
    segments_of,
)
from training.tokenizer import ChatTokenizer, TemplateMismatch, TokenSpans

log = logging.getLogger("training.serve")


class Served(Protocol):
    """A loaded adapter."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...


class Serving(Protocol):
    """What samples: `training.engine.scheduler.Sampler`, or weights on another server.

    Errors are those of the scheduler.
    """

    @property
    def name(self) -> str: ...

    @property
    def tokenizer(self) -> ChatTokenizer: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def context(self) -> int: ...

    def adapters(self) -> Sequence[Served]: ...

    def add_adapter(self, *, name: str, path: Path) -> Served: ...

    def remove_adapter(self, name: str) -> bool: ...

    def submit(self, *requests: SampleRequest) -> list[Future[SampleResult]]: ...

    def close(self) -> None: ...


def create_app(sampler: Serving) -> Starlette:
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

    def __init__(self, sampler: Serving) -> None:
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
        body = await read_body(request)
        name = field_of(body, "name", str, None)
        path = field_of(body, "path", str, None)
        adapter = await asyncio.to_thread(self._sampler.add_adapter, name=name, path=Path(path))
        return JSONResponse({"id": adapter.name, "path": adapter.path}, status_code=201)

    async def remove_adapter(self, request: Request) -> Response:
        name = request.path_params["name"]
        if not self._sampler.remove_adapter(name):
            return _error(404, f"no adapter {name!r} is loaded", code="adapter_not_found")
        return Response(status_code=204)

    async def completions(self, request: Request) -> Response:
        body = await read_body(request)
        options = options_of(body)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            ids = self._sampler.tokenizer.encode(prompt, special=True)
        elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
            ids = prompt
        else:
            raise BadField("prompt", "must be a text or a list of token ids")
        results = await self._sample(request, options, ids)
        choices = [
            {"index": index, "text": result.text, **choice_of(result, options.wants_tokens)}
            for index, result in enumerate(results)
        ]
        return JSONResponse(answer("cmpl", "text_completion", options, ids, results, choices))

    async def chat(self, request: Request) -> Response:
        body = await read_body(request)
        options = options_of(body)
        spans = self._sampler.tokenizer.encode_messages(messages_of(body))
        results = await self._sample(request, options, spans.ids)
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": result.text},
                **choice_of(result, options.wants_tokens),
            }
            for index, result in enumerate(results)
        ]
        body = answer("chatcmpl", "chat.completion", options, spans.ids, results, choices)
        if options.wants_tokens:
            body["prompt_token_ids"] = spans.ids
            body["prompt_token_kinds"] = spans.kinds
        return JSONResponse(body)

    async def tokenize(self, request: Request) -> Response:
        body = await read_body(request)
        tokenizer = self._sampler.tokenizer
        spans: TokenSpans
        if "bridge" in body:
            bridge = body["bridge"]
            if not isinstance(bridge, dict):
                raise BadField("bridge", "must be an object")
            spans = tokenizer.encode_bridge(
                segments_of(bridge),
                sampled_eos=field_of(bridge, "sampled_eos", bool, None),
                role=field_of(bridge, "role", str, "user"),
            )
        elif "messages" in body:
            opens = field_of(body, "add_generation_prompt", bool, True)
            spans = tokenizer.encode_messages(messages_of(body), add_generation_prompt=opens)
        else:
            raise BadField("messages", "give messages or bridge")
        return JSONResponse({"ids": spans.ids, "kinds": spans.kinds})

    async def _sample(
        self, request: Request, options: Options, ids: list[int]
    ) -> list[SampleResult]:
        """The choices of one call. Their rows are dropped if the caller hangs up."""
        rows = [
            SampleRequest(
                model=options.model,
                prompt_ids=tuple(ids),
                max_tokens=options.max_tokens,
                temperature=options.temperature,
                seed=choice_seed(options.seed, index),
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
    except TooLarge as error:
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
