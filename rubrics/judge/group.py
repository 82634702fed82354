"""Judging rollouts of one task beside one another.

Marks: one question shows several rollouts, without names and in an order that a keyed hash of their
content decides, and asks for a mark for each. A reply counts as a whole or not at all: as many
marks as were asked for, each label once. This is best-of-group as in RULER (OpenPipe's ART), with
an error in place of its guesses. Pairs: two rollouts, in both orders; orders that disagree are a
tie, which shows how much the place decides.

Large groups are cut into chunks that overlap, large sets of pairs into a ring in which each meets
the same number of others. All of this is pure and hangs on the content and the installation's
secret alone, so the same group is asked the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

from rubrics.judge.question import ROLE, Question, Sampling, framed_json, keyed_code
from rubrics.judge.reply import only_value
from rubrics.judge.scale import Problem, Reading, Scale
from rubrics.judge.tolerant_json import Pairs, Value
from rubrics.judge.value import read_value
from rubrics.types import State

T = TypeVar("T")

_TASK = (
    "The data holds several rollouts of one task. Mark each by the criterion alone; compare them, "
    "and give equal marks to what is equally good. Their order and their labels mean nothing."
)


@dataclass(frozen=True)
class Mark:
    value: float
    """0 to 1."""
    reason: str = ""


@dataclass(frozen=True)
class GroupQuestion(Question):
    """A question with an answer for each label."""

    labels: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        mark = {
            "type": "object",
            "properties": {
                "id": {"type": "string", "enum": list(self.labels)},
                "reason": {"type": "string"},
                "score": _score_schema(self.scale),
            },
            "required": ["id", "reason", "score"],
            "additionalProperties": False,
        }
        n = len(self.labels)
        return {
            "type": "object",
            "properties": {
                "key": {"type": "string", "enum": [self.key]},
                "marks": {"type": "array", "items": mark, "minItems": n, "maxItems": n},
            },
            "required": ["key", "marks"],
            "additionalProperties": False,
        }


def make_group_question(
    *,
    criterion: str,
    ask: str,
    scale: Scale,
    around: Mapping[str, Any],
    views: Sequence[Mapping[str, Any]],
    sampling: Sampling,
    anchors: Mapping[str, str] | None = None,
    secret: bytes,
    repeat: int = 0,
) -> GroupQuestion:
    """`around`: what all rollouts share, such as the task. `views`: in the order of showing."""
    labels = labels_of(len(views))
    shown = [{"id": label, **view} for label, view in zip(labels, views, strict=True)]
    body = framed_json({**around, "rollouts": shown})
    mark = keyed_code(secret, "mark", ask, body)
    key = keyed_code(secret, "key", ask, body, str(repeat))
    if scale.kind == "binary":
        values = "1 if the criterion is met, 0 if it is not"
    else:
        values = f"a number from {scale.min:g} to {scale.max:g}"
    form = (
        f'{{"key": "{key}", "marks": [{{"id": "{labels[0]}", "reason": "a sentence", '
        f'"score": {values}}}, …]}}'
    )
    parts = [
        f"Criterion: {ask.strip()}",
        *(f"{value}: {text.strip()}" for value, text in (anchors or {}).items()),
        _TASK,
        f"<data-{mark}>\n{body}\n</data-{mark}>",
        f"Reply with one JSON object and nothing else, with exactly {len(labels)} marks, one for "
        f"each of {', '.join(labels)}:\n{form}",
    ]
    user = "\n\n".join(parts)
    return GroupQuestion(criterion, scale, sampling, ROLE, user, key, repeat, labels)


def read_marks(question: GroupQuestion, text: str | None) -> tuple[Reading, dict[str, Mark]]:
    """The mean of all marks, and each; or why the reply counts for none of them. Never raises."""
    value = only_value(text)
    if isinstance(value, Problem):
        return Reading.errored(value), {}
    fields = _fields(value)
    if fields is None:
        return Reading.errored(Problem.NO_VERDICT), {}
    if fields.get("key", question.key) != question.key or _is_twice(value):
        return Reading.errored(Problem.AMBIGUOUS), {}
    listed = fields.get("marks")
    if not isinstance(listed, list):
        return Reading.errored(Problem.NO_VERDICT), {}
    found: dict[str, Mark] = {}
    for item in listed:
        given = _fields(item)
        label = (given or {}).get("id")
        if given is None or not isinstance(label, str) or label not in question.labels:
            return Reading.errored(Problem.WRONG_COUNT), {}
        if label in found:
            return Reading.errored(Problem.WRONG_COUNT), {}
        reading = read_value(question.scale, item)
        if reading.value is None:
            return Reading.errored(reading.problem or Problem.NA_NOT_ALLOWED), {}
        reason = given.get("reason")
        found[label] = Mark(reading.value, reason.strip() if isinstance(reason, str) else "")
    if len(found) != len(question.labels):
        return Reading.errored(Problem.WRONG_COUNT), {}
    return Reading(State.SCORED, fmean(mark.value for mark in found.values())), found


# --- who is shown with whom


def labels_of(n: int) -> tuple[str, ...]:
    """R1, R2, …: of equal look, and not the number of anything else."""
    return tuple(f"R{i + 1}" for i in range(n))


def in_drawn_order(
    items: Sequence[T], texts: Sequence[str], secret: bytes, *salt: str
) -> list[T]:  # fmt: skip
    """By a keyed hash of each item's text: no agent can aim at a place."""
    drawn = sorted(
        range(len(items)), key=lambda i: (keyed_code(secret, "order", *salt, texts[i]), i)
    )
    return [items[i] for i in drawn]


def chunked(items: Sequence[T], size: int, overlap: int) -> list[list[T]]:
    """Chunks of `size` that share `overlap` with their neighbour and hold every item.

    The last one is filled from before it, so that all are equally large.
    """
    if len(items) <= size:
        return [list(items)]
    step = size - overlap
    starts = list(range(0, len(items) - size, step))
    return [list(items[start : start + size]) for start in (*starts, len(items) - size)]


def paired(items: Sequence[T], opponents: int) -> list[tuple[T, T]]:
    """All pairs where each has at most `opponents` others, else a ring of near neighbours."""
    n = len(items)
    if n - 1 <= opponents:
        return [(items[i], items[j]) for i in range(n) for j in range(i + 1, n)]
    reach = max(1, opponents // 2)
    return [(items[i], items[(i + far) % n]) for far in range(1, reach + 1) for i in range(n)]


def outcome(first_order: float | None, second_order: float | None) -> float | None:
    """What a pair is worth to the one that was shown first in the first order.

    Each value is what the rollout that was shown first got: above 0.5 it won. 0.5 for a tie and
    for orders that disagree; None where an order has no verdict.
    """
    if first_order is None or second_order is None:
        return None
    won, lost = _sign(first_order), -_sign(second_order)
    return 0.5 + 0.5 * won if won == lost else 0.5


def _sign(value: float) -> int:
    return (value > 0.5) - (value < 0.5)


def _score_schema(scale: Scale) -> dict[str, Any]:
    if scale.kind == "binary":
        return {"type": "integer", "enum": [0, 1]}
    return {"type": "number", "minimum": scale.min, "maximum": scale.max}


def _fields(value: Value) -> dict[str, Value] | None:
    if not isinstance(value, Pairs):
        return None
    return {key.lower(): held for key, held in value.items}


def _is_twice(value: Value) -> bool:
    """Whether the object says one of its keys more than once."""
    keys = [key.lower() for key, _ in value.items] if isinstance(value, Pairs) else []
    return len(set(keys)) != len(keys)
