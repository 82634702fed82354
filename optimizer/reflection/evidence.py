"""Which traces a reflector reads, and how much of each.

Failed traces are spread over strata and tasks; passed ones are of the same tasks or strata where
there are any, since a contrast says more than an example. A long trace keeps its first step and a
window around the failure: the step that a failed criterion cites, else the first one that went
wrong, else the last. Whatever is left out is counted in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from optimizer.operators.evidence import Step, Trace
from optimizer.reflection.modes import Mode
from optimizer.seeds import derive

TEXT_CHARS = 2_000
"""Of one text at most: an action, what it brought, the task."""
REASON_CHARS = 600
TEXTS_IN_ROOM = 4
"""A text takes at most this part of a trace's room."""
LEAST_CHARS = 150
"""Of a text, and with less nothing could be understood."""


def chosen(
    traces: Sequence[Trace], *, mode: Mode, failed: int, passed: int, success: float, seed: int
) -> list[Trace]:
    """Traces to show, failed ones first. The same for the same traces, in whatever order."""
    bad = [trace for trace in traces if trace.has_failed(success)]
    good = [trace for trace in traces if trace.has_passed(success)]
    if mode is Mode.TOOLS:
        # What matters are calls that went wrong, also in rollouts that got there all the same.
        wrong = [trace for trace in traces if has_wrong_call(trace)]
        return _spread(wrong, failed, seed, lambda trace: -_n_wrong(trace))
    solved = {trace.task for trace in good}
    first = _spread(
        bad, failed, seed, lambda trace: trace.task not in solved if mode is Mode.SKILL else 0
    )
    tasks, strata = {trace.task for trace in first}, {trace.stratum for trace in first}
    if not good:
        # Nothing has passed yet; the best that failed shows what already works.
        seen = set(map(id, first))
        rest = [trace for trace in bad if id(trace) not in seen]
        return first + _spread(rest, min(1, passed), seed, lambda trace: -(trace.score or 0.0))
    second = _spread(
        good,
        passed,
        seed,
        lambda trace: 0 if trace.task in tasks else 1 if trace.stratum in strata else 2,
    )
    return first + second


def has_wrong_call(trace: Trace) -> bool:
    return _n_wrong(trace) > 0


def _n_wrong(trace: Trace) -> int:
    return sum(bool(step.tool and step.error) for step in trace.moves)


def _spread(
    traces: Sequence[Trace], count: int, seed: int, rank: Callable[[Trace], float]
) -> list[Trace]:
    """The best by `rank`, strata taking turns; a task comes again only once all have come."""

    def order(trace: Trace) -> tuple[float, int]:
        return (rank(trace), derive(seed, trace.task, trace.source))

    found: list[Trace] = []
    left = sorted(traces, key=order)
    uses: dict[str, int] = {}
    turns: dict[str, int] = {}
    while left and len(found) < count:
        best = min(
            left,
            key=lambda t: (uses.get(t.task, 0), rank(t), turns.get(t.stratum, 0)),
        )
        left.remove(best)
        found.append(best)
        uses[best.task] = uses.get(best.task, 0) + 1
        turns[best.stratum] = turns.get(best.stratum, 0) + 1
    return found


# --- one trace


def shown(trace: Trace, room: int, *, success: float) -> dict[str, Any]:
    """A trace as plain values, in about `room` characters."""
    told: dict[str, Any] = {"task": trace.task}
    if trace.stratum:
        told["kind_of_task"] = trace.stratum
    told["outcome"] = "passed" if trace.has_passed(success) else "failed"
    told["score"] = None if trace.score is None else round(trace.score, 3)
    most = max(LEAST_CHARS, min(TEXT_CHARS, room // TEXTS_IN_ROOM))
    if trace.messages:
        told["asked"] = cut(trace.messages[0]["content"], most)
    told["criteria"] = [
        {
            "criterion": item.name or item.criterion,
            "value": item.value,
            **({} if item.is_passed is None else {"passed": item.is_passed}),
            "reason": cut(item.reason, min(most, REASON_CHARS)),
        }
        for item in trace.judgements
    ]
    if trace.skills_loaded:
        told["skills_loaded"] = list(trace.skills_loaded)
    told["steps"] = _window(trace, room - _size(told), most)
    if trace.answer is not None:
        told["final_answer"] = cut(trace.answer, most)
    return told


def _window(trace: Trace, room: int, most: int) -> list[dict[str, Any]]:
    """`most`: characters of one text."""
    steps = [_step(number, step, most) for number, step in enumerate(trace.moves, start=1)]
    if not steps:
        return []
    focus = _focus(trace)
    kept = {focus}
    room -= _size(steps[focus])
    # The start says what was tried at all; then outwards from the failure, what led to it first.
    before, after = range(focus - 1, -1, -1), range(focus + 1, len(steps))
    order = [0, *(i for pair in _by_turns(before, after) for i in pair)]
    for i in order:
        if i in kept:
            continue
        if (room := room - _size(steps[i])) < 0:
            break
        kept.add(i)
    found: list[dict[str, Any]] = []
    missing = 0
    for i, step in enumerate(steps):
        if i in kept:
            found += _gap(missing)
            found.append(step)
            missing = 0
        else:
            missing += 1
    return found + _gap(missing)


def _focus(trace: Trace) -> int:
    moves = trace.moves
    blamed = {n for item in trace.judgements if item.is_passed is False for n in item.cites}
    cited = [i for i, step in enumerate(moves) if step.event and step.event in blamed]
    wrong = [i for i, step in enumerate(moves) if step.error]
    return (cited or wrong or [len(moves) - 1])[0]


def _by_turns(before: Sequence[int], after: Sequence[int]) -> list[list[int]]:
    """Two steps back for each step on: causes stand before the failure."""
    longest = max((len(before) + 1) // 2, len(after))
    return [[*before[2 * i : 2 * i + 2], *after[i : i + 1]] for i in range(longest)]


def _gap(missing: int) -> list[dict[str, Any]]:
    if not missing:
        return []
    return [{"left_out": f"{missing} step{'s' if missing > 1 else ''}, for want of room"}]


def _step(number: int, step: Step, most: int) -> dict[str, Any]:
    told: dict[str, Any] = {"step": number, "agent": cut(step.action, most)}
    if step.tool:
        written = json.dumps(step.arguments, ensure_ascii=False, default=str)
        arguments = cut(written, most) if len(written) > most else dict(step.arguments)
        told["call"] = {"tool": step.tool, "arguments": arguments}
    if step.output:
        told["observed"] = cut(step.output, most)
    if step.error:
        told["error"] = cut(step.error, min(most, REASON_CHARS))
    return told


def _size(value: Any) -> int:
    return len(str(value))


def cut(text: str, most: int) -> str:
    """At most about `most` characters, from both ends, with what is missing said between."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]} [… {len(text) - head - tail:,} characters left out …] {text[-tail:]}"
