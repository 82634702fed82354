"""Requests of a proposer to one OpenAI-compatible endpoint.

An endpoint that is overloaded or away is waited for, as long as `patience_s` and as it asks
(`Retry-After`). One that refuses the form of a request is asked more plainly: without a schema,
then without sampling parameters, which some reasoning models refuse. What cannot be helped is a
`ModelError` with the endpoint's words. Time is an argument, so that a test need not wait.
"""

from __future__ import annotations

import asyncio
import email.utils
import functools
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import httpx

from optimizer.skills import estimated_tokens
from orchestrator.agents.client import Endpoint
from orchestrator.agents.errors import ModelError
from orchestrator.agents.redacting import transport_for
from orchestrator.agents.types import FunctionCall

REQUEST_TIMEOUT_S = 300.0
"""For one answer; models that reason take minutes."""
CONNECT_TIMEOUT_S = 5.0
WAITED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
FORM_STATUS = frozenset({400, 422})
"""Perhaps only a parameter was refused."""
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
MAX_PAUSE_S = 60.0
"""Of one wait that the endpoint asks for."""
PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Clock:
    """The time of the waits between requests."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True)
class Reply:
    text: str
    tokens_in: int
    tokens_out: int
    seconds: float
    """Waits included."""
    is_cut: bool = False
    """The endpoint stopped at the limit of tokens."""
    calls: Sequence[FunctionCall] = ()

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


class Refused(ModelError):
    """An answer with a status that waiting does not help."""

    def __init__(self, message: str, cause: str, status: int) -> None:
        super().__init__(message, cause)
        self.status = status


@dataclass
class Line:
    """To one endpoint. Use as an async context manager."""

    endpoint: Endpoint
    patience_s: float
    clock: Clock = field(default_factory=Clock)
    takes_schema: bool | None = None
    """None: found out by asking."""

    def __post_init__(self) -> None:
        key = self.endpoint.api_key
        self._http = httpx.AsyncClient(
            base_url=self.endpoint.base_url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport_for(key, verify=_certificates(), trust_env=False),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        schema: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Reply:
        """Raises ModelError."""
        started = self.clock.now()
        plain: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [dict(message) for message in messages],
            **({"tools": [dict(tool) for tool in tools]} if tools else {}),
        }
        full = {**plain, "max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        forms: list[dict[str, Any]] = [full, {**plain, "max_completion_tokens": max_tokens}]
        if schema is not None and self.takes_schema is not False:
            told = {"name": "answer", "strict": True, "schema": dict(schema)}
            held = {"type": "json_schema", "json_schema": told}
            forms.insert(0, {**full, "response_format": held})
        body = await self._first_accepted(forms)
        return self._reply(body, messages, self.clock.now() - started)

    async def _first_accepted(self, forms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        first: Refused | None = None
        for form in forms:
            try:
                body = await self._posted(form)
            except Refused as why:
                if why.status not in FORM_STATUS or why.cause == "context_overflow":
                    raise
                first = first or why
                continue
            if "response_format" in forms[0]:
                self.takes_schema = "response_format" in form
            return body
        assert first is not None  # there is at least one form
        raise first

    async def _posted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        deadline = self.clock.now() + self.patience_s
        attempt = 0
        while True:
            asked_to_wait_s = 0.0
            try:
                answer = await self._http.post(PATH, json=body)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as exc:
                raise ModelError(
                    f"Model endpoint {self.endpoint.base_url!r} is not an http(s) address.",
                    "model_unreachable",
                ) from exc
            except (httpx.ReadTimeout, httpx.WriteTimeout):
                failure = self._failure(f"gave no answer within {REQUEST_TIMEOUT_S:g} s", "timeout")
            except httpx.RequestError as exc:
                failure = self._failure(
                    f"could not be reached for {self.patience_s:g} s ({type(exc).__name__}); is it "
                    "running?",
                    "unreachable",
                )
            else:
                if answer.status_code == 200:
                    return self._decoded(answer)
                if answer.status_code not in WAITED_STATUS:
                    raise self._refusal(answer)
                asked_to_wait_s = retry_after_s(answer.headers.get("Retry-After", ""))
                failure = self._failure(
                    f"was overloaded for {self.patience_s:g} s (HTTP {answer.status_code}, asked "
                    f"{attempt + 1} times)",
                    "overloaded",
                )
            pause_s = max(PAUSES_S[min(attempt, len(PAUSES_S) - 1)], asked_to_wait_s)
            if self.clock.now() + pause_s > deadline:
                raise failure
            await self.clock.sleep(pause_s)
            attempt += 1

    def _failure(self, what: str, cause: str) -> ModelError:
        where = f"Model {self.endpoint.model} at {self.endpoint.base_url}"
        return ModelError(f"{where} {what}.", f"model_{cause}")

    def _refusal(self, answer: httpx.Response) -> Refused:
        try:
            error = answer.json()["error"]
            text, code = str(error.get("message") or ""), str(error.get("code") or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            text, code = answer.text, ""
        cause = "context_overflow" if "context" in f"{code} {text[:300]}".lower() else "refused"
        cause = cause if cause == "context_overflow" else "model_refused"
        where = f"Model {self.endpoint.model} at {self.endpoint.base_url}"
        said = " ".join(text.split())[:300]
        message = f"{where} refused the request (HTTP {answer.status_code}): {said}"
        return Refused(message, cause, answer.status_code)

    def _decoded(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            began = " ".join(answer.text[:200].split())
            raise self._failure(
                f"answered something else than a JSON object, beginning with: {began!r}",
                "reply_invalid",
            )
        return body

    def _reply(
        self, body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], seconds: float
    ) -> Reply:
        try:
            choice = body["choices"][0]
            message = choice["message"]
            text, calls = message.get("content"), message.get("tool_calls") or ()
            told = [_call(number, call) for number, call in enumerate(calls)]
        except (KeyError, IndexError, TypeError, AttributeError) as exc:
            raise self._failure(f"gave an answer that lacks {exc}", "reply_invalid") from exc
        text = text if isinstance(text, str) else ""
        usage = body.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        sent = "".join(str(message.get("content") or "") for message in messages)
        return Reply(
            text=text,
            # An endpoint that counts nothing has not answered for nothing.
            tokens_in=_count(counts.get("prompt_tokens"), estimated_tokens(sent)),
            tokens_out=_count(counts.get("completion_tokens"), estimated_tokens(text)),
            seconds=seconds,
            is_cut=choice.get("finish_reason") == "length",
            calls=told,
        )


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Reading them takes longer than a request to a model next door, and tuning makes many."""
    return httpx.create_ssl_context(trust_env=False)


def retry_after_s(said: str) -> float:
    """Seconds that `Retry-After` asks for, as seconds or as a date; 0 for anything else."""
    try:
        wait_s = float(said)
    except ValueError:
        try:
            until = email.utils.parsedate_to_datetime(said)
        except ValueError:
            return 0.0
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        wait_s = (until - datetime.now(UTC)).total_seconds()
    return min(max(0.0, wait_s), MAX_PAUSE_S) if wait_s == wait_s else 0.0


def _call(number: int, call: Mapping[str, Any]) -> FunctionCall:
    function = call["function"]
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else "{}"
    return FunctionCall(str(call.get("id") or number), str(function["name"]), text)


def _count(value: object, estimate: int) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else estimate  # type: ignore[return-value] # an int by `is_count`
