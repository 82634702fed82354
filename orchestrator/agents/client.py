"""Clients of model endpoints: our model server, and anything that speaks the OpenAI protocol.

Every request has a deadline that includes its retries. A server that is restarting is waited for:
sampling has no effect outside the model, so asking again is safe. An adapter that the server does
not know (it was restarted) is registered again and the request repeated. What cannot be helped by
waiting is raised at once as `ModelError`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from orchestrator import measures, tracing
from orchestrator.agents.errors import ModelError
from orchestrator.agents.redacting import transport_for
from orchestrator.agents.types import (
    Completion,
    Function,
    FunctionCall,
    Message,
    Sampling,
    Segment,
)

REQUEST_TIMEOUT_S = 120.0
"""For one request; a batch of 48 rows on two busy cores needs some 40 s."""
CONNECT_TIMEOUT_S = 5.0
RETRY_FOR_S = 180.0
"""How long a server may be away. A killed model process is back in about 10 s."""
RETRIED_STATUS = frozenset({429, 502, 503, 504})
PAUSES_S = (0.1, 0.3, 1.0, 2.0)


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers. `adapter_path` is set when `model` names an adapter of our server."""

    base_url: str
    model: str
    adapter_path: str = ""
    api_key: str = field(default="", repr=False)


class ModelClient:
    """Requests to one endpoint over a pool of connections. Use as an async context manager."""

    def __init__(self, endpoint: Endpoint, *, retry_for_s: float = RETRY_FOR_S) -> None:
        self.endpoint = endpoint
        self._retry_for_s = retry_for_s
        headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        self._http = httpx.AsyncClient(
            base_url=endpoint.base_url.rstrip("/"),
            headers=headers,
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport_for(
                endpoint.api_key,
                limits=httpx.Limits(max_connections=128, max_keepalive_connections=64),
                trust_env=False,
            ),
            trust_env=False,
        )
        self._adapter_lock = asyncio.Lock()

    async def __aenter__(self) -> ModelClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The decoded answer of a request that succeeded within the deadline.

        Raises:
            ModelError: after the deadline, or at once when waiting cannot help.
        """
        began_s, outcome = time.monotonic(), "failed"
        asked = {"gen_ai.request.model": self.endpoint.model, "url.path": path}
        with tracing.span("model call", asked, role="client") as span:
            try:
                answer = await self._posted(path, body)
                outcome = "ok"
                return answer
            except ModelError as error:
                outcome = error.cause
                span.fail(outcome)
                raise
            finally:
                measures.MODEL_SECONDS.labels(outcome).observe(time.monotonic() - began_s)

    async def _posted(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        url, limit = self.endpoint.base_url, f"{self._retry_for_s:g} s"
        deadline = time.monotonic() + self._retry_for_s
        attempt = 0
        while True:
            left_s = deadline - time.monotonic()
            timeout_s = max(0.1, min(REQUEST_TIMEOUT_S, left_s))
            timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
            try:
                answer = await self._http.post(path, json=body, timeout=timeout)
            except httpx.UnsupportedProtocol as exc:
                raise ModelError(
                    f"Model endpoint {url!r} is not an http(s) address.", "model_unreachable"
                ) from exc
            except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout):
                failure = ModelError(
                    f"Model {self.endpoint.model} at {url} gave no answer within {timeout_s:.3g} "
                    f"s; it was asked for {limit}.",
                    "model_timeout",
                )
            except httpx.TransportError as exc:
                failure = ModelError(
                    f"Model endpoint {url} could not be reached within {limit} "
                    f"({type(exc).__name__}). Is the model server running?",
                    "model_unreachable",
                )
            else:
                if answer.status_code == 200:
                    return self._decoded(answer)
                if answer.status_code == 404 and self.endpoint.adapter_path and attempt < 20:
                    await self.load_adapter()
                    failure = self._refusal(answer)
                elif answer.status_code in RETRIED_STATUS:
                    failure = ModelError(
                        f"Model endpoint {url} was overloaded for {limit} "
                        f"(HTTP {answer.status_code}).",
                        "model_overloaded",
                    )
                else:
                    raise self._refusal(answer)
            pause = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
            if time.monotonic() + pause > deadline:
                raise failure
            await asyncio.sleep(pause)
            attempt += 1

    async def load_adapter(self) -> None:
        """Registers the endpoint's adapter with our model server. Safe to call twice."""
        async with self._adapter_lock:
            try:
                answer = await self._http.post(
                    "/v1/adapters",
                    json={"name": self.endpoint.model, "path": self.endpoint.adapter_path},
                )
            except httpx.TransportError:
                return  # the request that needed it is repeated and asks again
        if answer.status_code not in (200, 201) and answer.status_code not in RETRIED_STATUS:
            raise self._refusal(answer)

    def _decoded(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            body = answer.json()
        except ValueError as exc:
            raise ModelError(
                f"Model endpoint {self.endpoint.base_url} answered something that is not JSON.",
                "model_reply_invalid",
            ) from exc
        if not isinstance(body, dict):
            raise ModelError(
                f"Model endpoint {self.endpoint.base_url} answered JSON that is not an object.",
                "model_reply_invalid",
            )
        return body

    def _refusal(self, answer: httpx.Response) -> ModelError:
        try:
            error = answer.json().get("error", {})
            text = str(error.get("message", "")) or answer.text[:300]
            code = str(error.get("code", ""))
        except (ValueError, AttributeError):
            text, code = answer.text[:300], ""
        cause = "context_overflow" if "context" in code else "model_refused"
        return ModelError(
            f"Model {self.endpoint.model} at {self.endpoint.base_url} refused the request "
            f"(HTTP {answer.status_code}): {text}",
            cause,
        )

    def lacks(self, missing: object) -> ModelError:
        """The error for an answer without something that is needed."""
        return ModelError(
            f"The answer of model endpoint {self.endpoint.base_url} lacks {missing}.",
            "model_reply_invalid",
        )


class LocalModel:
    """Token-exact requests to our model server."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client

    async def tokenize_messages(self, messages: Sequence[Message]) -> tuple[list[int], list[str]]:
        body = await self._client.post(
            "/v1/tokenize", {"messages": list(messages), "add_generation_prompt": True}
        )
        return self._tokens(body)

    async def tokenize_bridge(
        self, *, ended_turn: bool, segments: Sequence[Segment]
    ) -> tuple[list[int], list[str]]:
        """Tokens from the end of a sampled action to the start of the next, with their kinds."""
        body = await self._client.post(
            "/v1/tokenize",
            {
                "bridge": {
                    "sampled_eos": ended_turn,
                    "segments": [{"kind": s.kind, "text": s.text} for s in segments],
                }
            },
        )
        return self._tokens(body)

    def _tokens(self, body: dict[str, Any]) -> tuple[list[int], list[str]]:
        ids, kinds = body.get("ids"), body.get("kinds")
        if not isinstance(ids, list) or not isinstance(kinds, list) or len(ids) != len(kinds):
            raise self._client.lacks("token ids with a kind each")
        return ids, kinds

    async def complete(self, ids: Sequence[int], sampling: Sampling, *, seed: int) -> Completion:
        started = time.monotonic()
        body = await self._client.post(
            "/v1/completions",
            {
                "model": self._client.endpoint.model,
                "prompt": list(ids),
                "max_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "stop": list(sampling.stop),
                "seed": seed,
                "logprobs": 0,
                "return_token_ids": True,
            },
        )
        try:
            choice = body["choices"][0]
            token_ids = tuple(choice["token_ids"])
            logprobs = tuple(choice["logprobs"]["sampling_logprobs"])
            completion = Completion(
                text=choice["text"],
                finish_reason=choice["finish_reason"],
                tokens_in=len(ids),
                tokens_out=len(token_ids),
                latency_s=time.monotonic() - started,
                token_ids=token_ids,
                logprobs=logprobs,
                ended_turn=choice["finish_reason"] == "stop" and choice.get("stop_reason") is None,
                weight_version=choice.get("weight_version", ""),
            )
        except (KeyError, IndexError, TypeError) as exc:
            raise self._client.lacks(exc) from exc
        if len(completion.logprobs) != len(token_ids):
            raise ModelError(
                f"Model endpoint {self._client.endpoint.base_url} gave {len(token_ids)} tokens but "
                f"{len(completion.logprobs)} log-probabilities.",
                "model_reply_invalid",
            )
        return completion


class ChatModel:
    """Text requests to any OpenAI-compatible endpoint."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        seed: int,
        functions: Sequence[Function] = (),
    ) -> Completion:
        """With `functions` no stop strings are sent: they would cut the JSON of a call."""
        started = time.monotonic()
        body: dict[str, Any] = {
            "model": self._client.endpoint.model,
            "messages": list(messages),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "seed": seed,
        }
        if sampling.top_p != 1:
            body["top_p"] = sampling.top_p
        if functions:
            body["tools"] = [function.as_json() for function in functions]
        elif sampling.stop:
            body["stop"] = list(sampling.stop)
        answer = await self._client.post("/v1/chat/completions", body)
        try:
            choice = answer["choices"][0]
            message = choice["message"]
            text = message.get("content") or ""
            finish_reason = choice.get("finish_reason") or "stop"
            calls = tuple(
                _call(number, call) for number, call in enumerate(message.get("tool_calls") or ())
            )
        except (KeyError, IndexError, TypeError, AttributeError) as exc:
            raise self._client.lacks(exc) from exc
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return Completion(
            text=str(text),
            finish_reason=str(finish_reason),
            tokens_in=int(usage.get("prompt_tokens") or 0),
            tokens_out=int(usage.get("completion_tokens") or 0),
            latency_s=time.monotonic() - started,
            weight_version=self._client.endpoint.model,
            calls=calls if functions else (),
        )


def _call(number: int, call: dict[str, Any]) -> FunctionCall:
    """Servers differ: some leave out the id, some give arguments as an object."""
    function = call["function"]
    arguments = function.get("arguments")
    return FunctionCall(
        id=str(call.get("id") or f"call_{number}"),
        name=str(function["name"]),
        arguments=arguments if isinstance(arguments, str) else json.dumps(arguments or {}),
    )
