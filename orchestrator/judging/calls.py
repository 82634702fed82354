"""What was asked and replied, in the database. These functions block: call them in threads."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import IntegrityError, connection, transaction

from orchestrator import measures
from orchestrator.agents.models import ModelEndpoint
from orchestrator.judging.models import JudgeCall
from rubrics.judge.ask import Attempt, Judged
from rubrics.judge.question import Question
from rubrics.judge.scale import Problem, Reading
from rubrics.types import State


@dataclass(frozen=True)
class Kept:
    """A stored call that gave a verdict."""

    id: int
    reading: Reading
    reason: str
    text: str | None = None
    """The reply that gave it."""


def find_call(project_id: int, key: str) -> Kept | None:
    """The verdict that this question got before. A call without one is asked again."""
    try:
        call = (
            JudgeCall.objects.filter(project_id=project_id, key=key)
            .exclude(state=State.ERRORED.value)
            .first()
        )
    finally:
        connection.close()  # of a thread that may end
    if call is None:
        return None
    text = call.replies[-1]["text"] if call.replies else None
    return Kept(call.pk, Reading(State(call.state), call.value), call.reason, text)


def store_call(
    *,
    project_id: int,
    key: str,
    endpoint: ModelEndpoint,
    question: Question,
    judged: Judged,
    cause: str = "",
) -> int:
    """Id of the row. A verdict that is there stays; replies of earlier failures are kept before
    the new ones. `cause`: why the endpoint gave nothing, where it was not the judge's words.
    """
    replies = [attempt.as_json() for attempt in judged.attempts]
    try:
        with transaction.atomic():
            call = JudgeCall.objects.filter(project_id=project_id, key=key).first()
            if call is None:
                call = JudgeCall(project_id=project_id, key=key)
            elif call.state != State.ERRORED.value:
                return call.pk
            _fill(call, endpoint, question, judged, cause)
            call.replies = [*call.replies, *replies]
            call.save()
            _count(judged)
            return call.pk
    except IntegrityError:
        # Another worker asked the same at the same time; its row is as good.
        return JudgeCall.objects.get(project_id=project_id, key=key).pk
    finally:
        connection.close()


def _count(judged: Judged) -> None:
    for attempt in judged.attempts:
        measures.TOKENS.labels("judge", "in").inc(attempt.completion.tokens_in)
        measures.TOKENS.labels("judge", "out").inc(attempt.completion.tokens_out)
        measures.COST_USD.labels("judge").inc(attempt.completion.cost_usd)


def _fill(
    call: JudgeCall, endpoint: ModelEndpoint, question: Question, judged: Judged, cause: str
) -> None:
    reading = judged.reading
    call.endpoint = endpoint
    call.criterion = question.criterion
    call.request = {
        "messages": question.messages,
        "schema": question.schema,
        "model": endpoint.model,
        "temperature": question.sampling.temperature,
        "seed": question.sampling.seed,
        "max_tokens": question.sampling.max_tokens,
    }
    call.state = reading.state.value
    call.value = reading.value
    call.reason = judged.reason
    call.reason_kind = cause or (reading.problem.value if reading.problem else "")
    call.tokens_in += sum(a.completion.tokens_in for a in judged.attempts)
    call.tokens_out += sum(a.completion.tokens_out for a in judged.attempts)
    call.cost_usd += sum(a.completion.cost_usd for a in judged.attempts)


def without_reply(why: str, attempts: tuple[Attempt, ...]) -> Judged:
    """For a judge whose endpoint gave nothing."""
    return Judged(Reading.errored(Problem.EMPTY), why, attempts)
