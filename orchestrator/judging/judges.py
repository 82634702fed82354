"""Judges of a project: which endpoint is asked, how, and how much at a time.

A reply is held to a JSON schema where the endpoint can; one that refuses the schema is asked in
words from then on, which is remembered. An endpoint that is overloaded is waited for
(`JUDGE_PATIENCE_S`); what it never answers is an error with its words. Equal questions are asked
once: in flight they share an answer, later they are read from the database.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from django.db import connection

from orchestrator import tracing
from orchestrator.agents.client import Endpoint, ModelClient
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.errors import ModelError
from orchestrator.agents.models import ModelEndpoint
from orchestrator.judging.calls import find_call, store_call, without_reply
from orchestrator.projects.secrets import SecretUnreadable
from rubrics.errors import CriterionFailed
from rubrics.judge.ask import Answer, Attempt, Completion, ask, read_answer
from rubrics.judge.question import Question

JUDGE_PATIENCE_S = 100.0
"""How long an endpoint may refuse for want of capacity; below a criterion's own deadline."""
AT_A_TIME = 8
"""Requests to one endpoint."""


HELD_LOOK_S = 0.1
"""How often a call that waits for others to settle looks again."""


class PurseHeld(CriterionFailed):
    """It may fit once calls that are on their way have settled below what was set aside."""


class Purse(Protocol):
    """What judges may spend. Implemented over a ledger; see `orchestrator.judging.budget`.

    Asked for every request, also for those that correct a bad reply; each has a key of its own.
    """

    def reserve(self, key: str, question: Question, endpoint: ModelEndpoint) -> None:
        """Raises CriterionFailed, with the cap's name and what is left, if it does not fit, and
        PurseHeld if it is worth asking again soon.
        """

    def settle(self, key: str, cost_usd: float, tokens: int) -> None:
        """What the call took."""


@dataclass
class _Judge:
    """An endpoint in use."""

    row: ModelEndpoint
    endpoint: Endpoint
    client: ModelClient
    slots: asyncio.Semaphore
    takes_schema: bool | None


@dataclass
class Judges:
    """Use as an async context manager, in one event loop."""

    project_id: int
    purse: Purse | None = None
    patience_s: float = JUDGE_PATIENCE_S
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _known: dict[str, asyncio.Task[_Judge]] = field(default_factory=dict)
    _asking: dict[str, asyncio.Task[Answer]] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._asking.values():
            task.cancel()
        await self._stack.aclose()

    async def judge(self, question: Question) -> Answer:
        """Raises CriterionFailed: no such judge, no reply, or no budget."""
        judge = await self._judge_named(question.sampling.model)
        key = call_key(question, judge.endpoint)
        task = self._asking.get(key)
        if task is None:
            task = asyncio.ensure_future(self._traced(judge, key, question))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        # Shielded: whoever else waits for it must not lose it to one that gave up.
        return await asyncio.shield(task)

    def _forget(self, key: str, task: asyncio.Task[Answer]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may be left

    async def _traced(self, judge: _Judge, key: str, question: Question) -> Answer:
        told = {"judge.criterion": question.criterion, "gen_ai.request.model": judge.row.model}
        with tracing.span("judge", told):
            return await self._answered(judge, key, question)

    async def _answered(self, judge: _Judge, key: str, question: Question) -> Answer:
        kept = await asyncio.to_thread(find_call, self.project_id, key)
        if kept is not None:
            _, marks = read_answer(question, kept.text)
            return Answer(kept.reading, kept.reason, kept.id, judge.row.name, marks)
        attempts: list[Attempt] = []

        async def complete(messages: Sequence[Mapping[str, str]]) -> Completion:
            completion = await self._paid(judge, key, question, messages)
            attempts.append(Attempt(completion, ""))
            return completion

        try:
            judged, cause, failure = await ask(question, complete), "", None
        except ModelError as exc:
            why = f"Judge {judge.row.name}: {exc.message}"
            judged, cause, failure = without_reply(why, tuple(attempts)), exc.cause, why
        except CriterionFailed as exc:
            if not attempts:
                raise  # nothing was asked
            judged, cause, failure = without_reply(str(exc), tuple(attempts)), "budget", str(exc)
        call = await asyncio.to_thread(
            lambda: store_call(
                project_id=self.project_id,
                key=key,
                endpoint=judge.row,
                question=question,
                judged=judged,
                cause=cause,
            )
        )
        if failure is not None:
            raise CriterionFailed(failure)
        return Answer(judged.reading, judged.reason, call, judge.row.name, judged.marks)

    async def _paid(
        self,
        judge: _Judge,
        key: str,
        question: Question,
        messages: Sequence[Mapping[str, str]],
    ) -> Completion:
        """One request, set aside before and settled after; a failed one is settled as nothing.

        One that is cancelled frees its reservation when that expires.
        """
        if self.purse is None:
            return await self._completed(judge, question, messages)
        own_key = f"{key[:32]}/{secrets.token_hex(6)}"
        await self._reserve(own_key, question, judge)
        try:
            completion = await self._completed(judge, question, messages)
        except ModelError:
            await asyncio.to_thread(self.purse.settle, own_key, 0.0, 0)
            raise
        tokens = completion.tokens_in + completion.tokens_out
        await asyncio.to_thread(self.purse.settle, own_key, completion.cost_usd, tokens)
        return completion

    async def _reserve(self, key: str, question: Question, judge: _Judge) -> None:
        assert self.purse is not None  # the caller has looked
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience_s
        while True:
            try:
                await asyncio.to_thread(self.purse.reserve, key, question, judge.row)
                return
            except PurseHeld:
                if loop.time() > until:
                    raise
            # Not in the thread: those that settle need threads too.
            await asyncio.sleep(HELD_LOOK_S)

    async def _completed(
        self, judge: _Judge, question: Question, messages: Sequence[Mapping[str, str]]
    ) -> Completion:
        async with judge.slots:
            if judge.takes_schema is not False:
                try:
                    return await _requested(judge, question, messages, with_schema=True)
                except ModelError as exc:
                    if exc.cause != "model_refused" or judge.takes_schema:
                        raise
                # It may have refused the schema, or the request: the request alone tells.
                completion = await _requested(judge, question, messages, with_schema=False)
                judge.takes_schema = False
                await asyncio.to_thread(_remember_schema, judge.row.pk, False)
                return completion
            return await _requested(judge, question, messages, with_schema=False)

    async def _judge_named(self, name: str) -> _Judge:
        if name not in self._known:
            self._known[name] = asyncio.ensure_future(self._opened(name))
        return await asyncio.shield(self._known[name])

    async def _opened(self, name: str) -> _Judge:
        try:
            row = await asyncio.to_thread(_endpoint_named, self.project_id, name)
            endpoint = endpoint_of(row)
        except SecretUnreadable as exc:
            raise CriterionFailed(f"Judge {name}: {exc}") from exc
        client = await self._stack.enter_async_context(
            ModelClient(endpoint, retry_for_s=self.patience_s)
        )
        slots = asyncio.Semaphore(AT_A_TIME)
        return _Judge(row, endpoint, client, slots, row.supports_schema)


def call_key(question: Question, endpoint: Endpoint) -> str:
    """Names a call by all that decides its reply."""
    parts = (question.sha256, endpoint.base_url, endpoint.model, endpoint.adapter_path)
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


async def _requested(
    judge: _Judge,
    question: Question,
    messages: Sequence[Mapping[str, str]],
    *,
    with_schema: bool,
) -> Completion:
    loop = asyncio.get_running_loop()
    started = loop.time()
    body: dict[str, Any] = {
        "model": judge.endpoint.model,
        "messages": [dict(message) for message in messages],
        "temperature": question.sampling.temperature,
        "seed": question.sampling.seed,
        "max_tokens": question.sampling.max_tokens,
    }
    if with_schema:
        schema = {"name": "verdict", "strict": True, "schema": question.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    answer = await judge.client.post("/v1/chat/completions", body)
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as exc:
        raise judge.client.lacks(exc) from exc
    usage = answer.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    tokens_in = _count(counts.get("prompt_tokens"))
    tokens_out = _count(counts.get("completion_tokens"))
    cost = (
        tokens_in * judge.row.price_in_usd_per_mtok + tokens_out * judge.row.price_out_usd_per_mtok
    ) / 1e6
    return Completion(
        text=text if isinstance(text, str) else None,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost_usd=cost,
        latency_s=round(loop.time() - started, 3),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _endpoint_named(project_id: int, name: str) -> ModelEndpoint:
    try:
        rows = ModelEndpoint.objects.filter(project_id=project_id)
        row = (rows.filter(name=name) if name else rows.filter(is_judge=True)).first()
        if row is None and name:
            known = ", ".join(rows.order_by("name").values_list("name", flat=True)) or "none"
            raise CriterionFailed(
                f"The project has no model named {name!r} (it has: {known}). Add it under "
                "Settings, Models, or name another one in the criterion."
            )
        if row is None:
            raise CriterionFailed(
                "The project has no judge. Choose one under Settings, Models, or name a model in "
                "the criterion."
            )
        return row
    finally:
        connection.close()


def _remember_schema(endpoint_id: int, takes_schema: bool) -> None:
    try:
        ModelEndpoint.objects.filter(pk=endpoint_id, supports_schema__isnull=True).update(
            supports_schema=takes_schema
        )
    finally:
        connection.close()
