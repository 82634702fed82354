"""Asking a judge until its verdict can be read: at most twice more, quoting the problem.

An endpoint that cannot be reached, refuses or is over its budget raises `CriterionFailed` in
`complete`; that is not the judge's answer and is not asked again here: waiting for rate limits is
the endpoint client's business.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rubrics.judge.group import GroupQuestion, Mark, read_marks
from rubrics.judge.question import Question
from rubrics.judge.reply import read_reply
from rubrics.judge.scale import Problem, Reading
from rubrics.judge.tolerant_json import NotJson, Pairs, parse
from rubrics.types import State

MAX_RETRIES = 2
GROUP_RETRIES = 1
"""A reply about a group is long; a second bad one leaves all that it was about undecided."""
QUOTED_CHARS = 300


@dataclass(frozen=True)
class Completion:
    """What one call gave, as it came."""

    text: str | None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    latency_s: float = 0.0


Complete = Callable[[Sequence[Mapping[str, str]]], Awaitable[Completion]]
"""Messages to one completion; raises CriterionFailed where there is none."""


@dataclass(frozen=True)
class Attempt:
    """One call and what was read in it."""

    completion: Completion
    problem: str
    """Empty if it gave a verdict."""

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.completion.text,
            "problem": self.problem,
            "tokens_in": self.completion.tokens_in,
            "tokens_out": self.completion.tokens_out,
            "cost_usd": self.completion.cost_usd,
            "latency_s": self.completion.latency_s,
        }


@dataclass(frozen=True)
class Judged:
    """A judge's verdict with every raw reply behind it."""

    reading: Reading
    """Of a group: the mean of its marks."""
    reason: str
    attempts: tuple[Attempt, ...] = field(default=())
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Of a group, by label."""


@dataclass(frozen=True)
class Answer:
    """What a kind learns of a call: the verdict, and where the raw replies are kept."""

    reading: Reading
    reason: str
    call: int | None = None
    """Id of the stored call."""
    model: str = ""
    """Who judged."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Of a group, by label."""


async def ask(question: Question, complete: Complete) -> Judged:
    """Raises CriterionFailed where the endpoint gives no reply at all."""
    attempts: list[Attempt] = []
    messages: list[Mapping[str, str]] = list(question.messages)
    retries = GROUP_RETRIES if isinstance(question, GroupQuestion) else MAX_RETRIES
    while True:
        completion = await complete(messages)
        reading, marks = read_answer(question, completion.text)
        problem = reading.problem.sentence if reading.problem else ""
        attempts.append(Attempt(completion, problem))
        if reading.state is not State.ERRORED:
            reason = reason_in(completion.text) or "the judge gave no reason"
            return Judged(reading, reason, tuple(attempts), marks)
        if len(attempts) > retries:
            reason = f"no readable verdict in {len(attempts)} replies: {problem}"
            return Judged(reading, reason, tuple(attempts))
        messages = _corrected(question, completion.text, problem)


def read_answer(question: Question, text: str | None) -> tuple[Reading, Mapping[str, Mark]]:
    """What a reply says, with the marks of a group."""
    if isinstance(question, GroupQuestion):
        return read_marks(question, text)
    return read_keyed(question, text), {}


def read_keyed(question: Question, text: str | None) -> Reading:
    """The verdict; a reply with another key than the one asked for is not the judge's own."""
    reading = read_reply(question.scale, text)
    given = _field(text, "key")
    if reading.problem is None and given is not None and given != question.key:
        return Reading.errored(Problem.AMBIGUOUS)
    return reading


def reason_in(text: str | None) -> str:
    """The reason that a JSON reply gives; empty for other replies."""
    found = _field(text, "reason")
    return found.strip() if isinstance(found, str) else ""


def _field(text: str | None, name: str) -> object:
    """A field of the reply's JSON object, also behind reasoning or in a fence."""
    body = (text or "").rpartition("</think>")[2].strip()
    start, end = body.find("{"), body.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value = parse(body[start : end + 1])
    except NotJson:
        return None
    pairs = value.items if isinstance(value, Pairs) else ()
    return next((held for key, held in pairs if key.lower() == name), None)


def _corrected(question: Question, text: str | None, problem: str) -> list[Mapping[str, str]]:
    """The question again with what was wrong. The bad reply is quoted in one piece of text, never a
    turn of its own: one that was talked into something must not become what the judge has said.
    """
    quoted = json.dumps((text or "")[:QUOTED_CHARS])
    again = (
        f"An earlier reply could not be used: {problem}. It began: {quoted}. "
        "Reply with one JSON object as described, and nothing else."
    )
    system, user = question.messages
    return [system, {"role": "user", "content": f"{user['content']}\n\n{again}"}]
