"""A model decides by comparing the rollouts of one task (`rubrics.judge.group`).

Marks or pairs. Rollouts that look the same to the judge are shown once and share what it says. What
a call could not say is left out for those that were judged often enough without it, and makes the
others errored; there is no zero for want of a mark.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.judge.ask import Answer
from rubrics.judge.group import (
    Mark,
    chunked,
    in_drawn_order,
    make_group_question,
    outcome,
    paired,
)
from rubrics.judge.question import Question, Sampling, framed_json, make_question
from rubrics.judge.scale import Scale
from rubrics.judge.view import view_of
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.kinds.judge import CITED, PARAMS, check, scale_of
from rubrics.types import Criterion, Scope, Services, Transcript, Verdict

METHODS = ("scores", "pairwise")
ROOM_CHARS = 120_000
"""Of the steps of all rollouts in one question."""
MAX_SHOWN = 16
_SHARED = ("task", "expected")
_PAIR = Scale("scale", 0.0, 1.0)
_PAIR_ANCHORS = {
    "1": "the rollout named first is better by the criterion",
    "0.5": "neither is better",
    "0": "the rollout named second is better by the criterion",
}


async def decide_alone(
    criterion: Criterion, transcript: Transcript, services: Services
) -> Verdict:  # fmt: skip
    raise CriterionFailed("is decided for a group of rollouts of one task; this one stands alone")


async def decide_group(
    criterion: Criterion, transcripts: Mapping[str, Transcript], services: Services
) -> dict[str, Verdict]:
    """A verdict for each. Raises CriterionFailed where the group as a whole cannot be judged."""
    if len(transcripts) < 2:
        raise CriterionFailed("a group needs at least two rollouts of its task; there is one")
    if len({transcript.task for transcript in transcripts.values()}) > 1:
        raise CriterionFailed("the rollouts are of different tasks")
    group = _Group.of(criterion, transcripts, services.frame_secret)
    if KIND.param(criterion, "method") == "pairwise":
        return await _by_pairs(criterion, transcripts, group, services)
    return await _by_marks(criterion, transcripts, group, services)


@dataclass(frozen=True)
class _Group:
    """What is shown: each different view once."""

    around: Mapping[str, Any]
    views: Sequence[Mapping[str, Any]]
    texts: Sequence[str]
    places: Mapping[str, int]
    """Rollout to its view."""

    @classmethod
    def of(
        cls, criterion: Criterion, transcripts: Mapping[str, Transcript], secret: bytes
    ) -> _Group:  # fmt: skip
        parts = [str(part) for part in KIND.param(criterion, "sees")]
        own = [part for part in parts if part not in _SHARED]
        shown = min(len(transcripts), _shown_at_once(criterion))
        room = ROOM_CHARS // max(1, shown)
        views: list[Mapping[str, Any]] = []
        texts: list[str] = []
        places: dict[str, int] = {}
        for name, transcript in transcripts.items():
            view = view_of(transcript, own, criterion.scope, room)
            text = framed_json(view)
            if text not in texts:
                texts.append(text)
                views.append(view)
            places[name] = texts.index(text)
        first = next(iter(transcripts.values()))
        shared = [part for part in parts if part in _SHARED]
        return cls(view_of(first, shared, Scope.FINAL_ANSWER), views, texts, places)


@dataclass
class _Said:
    """What was said of one view."""

    marks: list[tuple[Mark, Mapping[str, Any]]] = field(default_factory=list)
    failures: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


# --- marks


async def _by_marks(
    criterion: Criterion,
    transcripts: Mapping[str, Transcript],
    group: _Group,
    services: Services,
) -> dict[str, Verdict]:
    size = _shown_at_once(criterion)
    calls: list[tuple[list[int], Question]] = []
    for repeat in range(_repeats(criterion)):
        order = in_drawn_order(
            range(len(group.views)), group.texts, services.frame_secret, criterion.id, str(repeat)
        )
        for chunk in chunked(order, size, max(1, size // 4)):
            question = make_group_question(
                criterion=criterion.id,
                ask=str(criterion.params["question"]),
                scale=scale_of(KIND, criterion),
                around=group.around,
                views=[group.views[i] for i in chunk],
                anchors=criterion.params.get("anchors"),
                sampling=_sampling(criterion, repeat),
                secret=services.frame_secret,
                repeat=repeat,
            )
            calls.append((chunk, question))
    answers = await _asked([question for _, question in calls], services)
    said: dict[int, _Said] = defaultdict(_Said)
    for (chunk, _), answer in zip(calls, answers, strict=True):
        for place, view in enumerate(chunk):
            seen = {"place": place + 1, "of": len(chunk), **_named(answer)}
            if isinstance(answer, Answer) and answer.marks:
                mark = answer.marks[f"R{place + 1}"]
                said[view].marks.append((mark, {**seen, "value": mark.value}))
            else:
                why = answer if isinstance(answer, str) else answer.reason
                said[view].failures.append((why, {**seen, "failed": why}))
    detail = {
        "method": "scores",
        "group": len(transcripts),
        "shown": len(group.views),
        "position": _by_place(said.values()),
    }
    return {
        name: _marked(criterion, transcripts[name], said[place], detail)
        for name, place in group.places.items()
    }


def _marked(
    criterion: Criterion, transcript: Transcript, said: _Said, about: Mapping[str, Any]
) -> Verdict:
    calls = [seen for _, seen in (*said.marks, *said.failures)]
    detail = {**about, "calls": calls}
    if len(said.marks) <= len(said.failures):
        return Verdict.errored(criterion, said.failures[0][0], detail)
    values = [mark.value for mark, _ in said.marks]
    detail["spread"] = max(values) - min(values)
    first = said.marks[0][0].reason or "the judge gave no reason"
    several = f"{len(values)} marks. The first: " if len(values) > 1 else ""
    return Verdict.scored(
        criterion, fmean(values), f"{several}{first}", _cites(transcript, said), detail
    )


def _cites(transcript: Transcript, said: _Said) -> tuple[int, ...]:
    known = {step.seq for step in transcript.steps}
    named = (int(seq) for mark, _ in said.marks for seq in CITED.findall(mark.reason))
    return tuple(seq for seq in dict.fromkeys(named) if seq in known)


def _by_place(said: Any) -> dict[str, Any]:
    """Mean mark by the place in which a rollout was shown; equal where the place has no effect."""
    by_place: dict[int, list[float]] = defaultdict(list)
    for one in said:
        for mark, seen in one.marks:
            by_place[seen["place"]].append(mark.value)
    return {str(place): fmean(values) for place, values in sorted(by_place.items())}


# --- pairs


async def _by_pairs(
    criterion: Criterion,
    transcripts: Mapping[str, Transcript],
    group: _Group,
    services: Services,
) -> dict[str, Verdict]:
    order = in_drawn_order(
        range(len(group.views)), group.texts, services.frame_secret, criterion.id
    )
    pairs = paired(order, _shown_at_once(criterion) - 1) * _repeats(criterion)
    n_once = max(1, len(pairs) // _repeats(criterion))
    questions = [
        _pair_question(criterion, group, services.frame_secret, a, b, i // n_once)
        for i, (one, other) in enumerate(pairs)
        for a, b in ((one, other), (other, one))
    ]
    answers = await _asked(questions, services)
    said: dict[int, _Said] = defaultdict(_Said)
    tally = {"calls": 0, "first_won": 0, "second_won": 0, "pairs": len(pairs), "disagreed": 0}
    for i, (one, other) in enumerate(pairs):
        both = answers[2 * i : 2 * i + 2]
        values = [a.reading.value if isinstance(a, Answer) else None for a in both]
        _count(tally, values)
        worth = outcome(*values)
        calls = [_named(answer) for answer in both]
        if worth is None:
            failed = next(a for a, v in zip(both, values, strict=True) if v is None)
            why = failed if isinstance(failed, str) else failed.reason
            for view in (one, other):
                said[view].failures.append((why, {"pair": calls, "failed": why}))
            continue
        reason = next((a.reason for a in both if isinstance(a, Answer)), "")
        for view, value in ((one, worth), (other, 1.0 - worth)):
            said[view].marks.append((Mark(value, reason), {"pair": calls, "value": value}))
    detail = {
        "method": "pairwise",
        "group": len(transcripts),
        "shown": len(group.views),
        "position": tally,
    }
    return {
        name: _won(criterion, said[place], detail, is_single=len(group.views) == 1)
        for name, place in group.places.items()
    }


def _won(
    criterion: Criterion, said: _Said, about: Mapping[str, Any], *, is_single: bool
) -> Verdict:  # fmt: skip
    if is_single:
        return Verdict.scored(criterion, 0.5, "all rollouts look the same: a tie", (), about)
    calls = [seen for _, seen in (*said.marks, *said.failures)]
    detail = {**about, "calls": calls}
    if len(said.marks) <= len(said.failures):
        return Verdict.errored(criterion, said.failures[0][0], detail)
    values = [mark.value for mark, _ in said.marks]
    won, tied = values.count(1.0), values.count(0.5)
    reason = f"won {won} of {len(values)} pairs, {tied} tied. The first: {said.marks[0][0].reason}"
    return Verdict.scored(criterion, fmean(values), reason, (), detail)


def _pair_question(
    criterion: Criterion, group: _Group, secret: bytes, a: int, b: int, repeat: int
) -> Question:
    ask = str(criterion.params["question"]).strip()
    return make_question(
        criterion=criterion.id,
        ask=f"{ask}\nCompare the two rollouts `first` and `second` of the data by this alone.",
        scale=_PAIR,
        data={**group.around, "first": group.views[a], "second": group.views[b]},
        anchors=_PAIR_ANCHORS,
        sampling=_sampling(criterion, repeat),
        secret=secret,
        repeat=repeat,
    )


def _count(tally: dict[str, int], values: Sequence[float | None]) -> None:
    known = [value for value in values if value is not None]
    tally["calls"] += len(known)
    tally["first_won"] += sum(value > 0.5 for value in known)
    tally["second_won"] += sum(value < 0.5 for value in known)
    if len(known) == 2 and (known[0] > 0.5) == (known[1] > 0.5) and 0.5 not in known:
        tally["disagreed"] += 1


# --- asking


async def _asked(questions: Sequence[Question], services: Services) -> list[Answer | str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(question, services)) for question in questions]
    return [task.result() for task in tasks]


async def _ask(question: Question, services: Services) -> Answer | str:
    """The answer, or why there is none: one that fails must not end its siblings."""
    try:
        return await services.judge(question)
    except CriterionFailed as failure:
        return str(failure)


def _named(answer: Answer | str) -> dict[str, Any]:
    return {"call": answer.call, "model": answer.model} if isinstance(answer, Answer) else {}


def _sampling(criterion: Criterion, repeat: int) -> Sampling:
    return Sampling(
        model=str(criterion.params.get("model", "")),
        temperature=float(KIND.param(criterion, "temperature")),
        seed=int(KIND.param(criterion, "seed")) + repeat,
        max_tokens=int(KIND.param(criterion, "max_tokens")),
    )


def _repeats(criterion: Criterion) -> int:
    return max(1, int(KIND.param(criterion, "repeats")))


def _shown_at_once(criterion: Criterion) -> int:
    return int(KIND.param(criterion, "group_size"))


def _check(params: Mapping[str, Any]) -> list[str]:
    problems = check({"scale": "scale", **params})
    if not 2 <= params.get("group_size", 2) <= MAX_SHOWN:
        problems.append(f"params.group_size: accepts 2 to {MAX_SHOWN}")
    if params.get("method") == "pairwise" and params.keys() & {"scale", "min", "max", "anchors"}:
        problems.append("params.method: pairs are won, lost or tied; a scale is for scores")
    if params.get("allows_na"):
        problems.append("params.allows_na: in a group every rollout gets a mark")
    return problems


_DEFAULTS = {
    param.name: param
    for param in (
        Param("max_tokens", ParamType.COUNT, "longest reply", default=2000),
        Param(
            "scale",
            ParamType.TEXT,
            "yes and no, or a range",
            default="scale",
            choices=("binary", "scale"),
        ),
    )
}

KIND = Kind(
    name="judge_group",
    about="A model compares the rollouts of a task",
    decide_async=decide_alone,
    decide_group=decide_group,
    params=(
        *(_DEFAULTS.get(param.name, param) for param in PARAMS),
        Param("model", ParamType.TEXT, "name of the endpoint; the project's judge where absent"),
        Param(
            "method",
            ParamType.TEXT,
            "a mark for each of several at once, or pairs in both orders",
            default="scores",
            choices=METHODS,
        ),
        Param(
            "group_size",
            ParamType.COUNT,
            f"rollouts shown at once, or met as opponents and itself; 2 to {MAX_SHOWN}",
            default=8,
        ),
    ),
    scopes=(Scope.TRAJECTORY, Scope.FINAL_ANSWER, Scope.ENVIRONMENT_STATE),
    check=_check,
)
