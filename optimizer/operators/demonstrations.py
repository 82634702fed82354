"""Demonstrations from reference transcripts and from the agent's own successes.

Chosen are the shortest of each stratum, the strata taking turns: short ones cost few tokens in
every later rollout, and different ones teach more than similar ones.

`nearest_pool` hands over many at once, of which each task is told the few that are worded most like
it. A task is never told its own solution then, so the tasks that they come from can still be used
to measure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from optimizer.edits import POOL, Edit, Op, demonstration_edit
from optimizer.harness import Demonstration, Pick
from optimizer.operators.evidence import Trace, distinct_tasks
from optimizer.seeds import derive
from optimizer.skills import estimated_tokens

MAX_CHARS = 4_000
"""Longer traces are no demonstrations; four of them would fill a small model's context."""
POOL_TOKENS = 4_500
"""Of all demonstrations in a pool, so that the edit passes the linter."""
NEAREST = (2, 4)
"""How many of a pool a task is told; alternatives."""


def from_references(traces: Iterable[Trace], *, count: int, seed: int) -> list[Edit]:
    """At most `count` edits that each add one author's transcript."""
    return [
        _edit(_reference(trace), trace, "demonstrations.reference")
        for trace in _spread(_usable(traces), count, seed)
    ]


def from_successes(
    traces: Iterable[Trace], *, count: int, seed: int, at_least: float = 1.0
) -> list[Edit]:
    """At most `count` edits that each add one of the agent's attempts that scored `at_least`."""
    good = [trace for trace in traces if trace.has_passed(at_least)]
    return [
        _edit(_own(trace), trace, "demonstrations.success")
        for trace in _spread(_usable(good), count, seed)
    ]


def nearest_pool(
    references: Iterable[Trace],
    attempts: Iterable[Trace],
    *,
    seed: int,
    at_least: float = 1.0,
    sizes: Sequence[int] = NEAREST,
) -> list[Edit]:
    """Alternatives that differ in how many of one pool a task is told.

    A task has one demonstration in the pool: its author's, or else the agent's own. None where
    there are not more of them than a task would be told.
    """
    written = _usable(references)
    known = {trace.task for trace in written}
    own = [t for t in _usable(attempts) if t.has_passed(at_least) and t.task not in known]
    chosen: list[Demonstration] = []
    tokens = 0
    for trace in _spread([*written, *own], len(written) + len(own), seed):
        item = _reference(trace) if trace.task in known else _own(trace)
        # Another edit may add the same demonstration by itself; ids in a harness are unique.
        item = Demonstration(f"{item.id}-near", item.messages, item.source)
        tokens += estimated_tokens(item.line())
        if tokens > POOL_TOKENS:
            break
        chosen.append(item)
    return [
        Edit(
            Op.SET,
            POOL,
            content=_pool(chosen, k),
            operator="demonstrations.nearest",
            support=len({item.source for item in chosen}),
            group="demonstrations.nearest",
        )
        for k in sizes
        if len(chosen) > k
    ]


def _pool(chosen: Sequence[Demonstration], k: int) -> str:
    added = [json.loads(item.line()) for item in chosen]
    return json.dumps({"pick": Pick.NEAREST, "k": k, "add": added}, ensure_ascii=False)


def _reference(trace: Trace) -> Demonstration:
    return Demonstration(trace.task, tuple(map(dict, trace.messages)), trace.task)


def _own(trace: Trace) -> Demonstration:
    # Named by its content: another round may prefer another attempt at the same task.
    messages = tuple(map(dict, trace.messages))
    mark = f"{derive(json.dumps(messages)):016x}"[-6:]
    return Demonstration(f"{trace.task}-own-{mark}", messages, trace.task)


def _edit(item: Demonstration, trace: Trace, operator: str) -> Edit:
    sources = distinct_tasks([trace])
    return demonstration_edit(item, operator=operator, support=len(sources), sources=sources)


def _usable(traces: Iterable[Trace]) -> list[Trace]:
    return [trace for trace in traces if _is_whole(trace) and trace.size_chars <= MAX_CHARS]


def _is_whole(trace: Trace) -> bool:
    """Begins with the task and ends with an action; roles take turns, as chat templates demand."""
    roles = [message["role"] for message in trace.messages]
    turns = ["user", "assistant"] * (len(roles) // 2)
    return bool(roles) and roles == turns and all(m["content"].strip() for m in trace.messages)


def _spread(traces: Sequence[Trace], count: int, seed: int) -> list[Trace]:
    strata: dict[str, list[Trace]] = {}
    taken: set[str] = set()
    for trace in sorted(traces, key=lambda t: (t.size_chars, derive(seed, t.task))):
        if trace.task not in taken:  # one attempt per task
            taken.add(trace.task)
            strata.setdefault(trace.stratum, []).append(trace)
    order = sorted(strata, key=lambda name: derive(seed, "stratum", name))
    deepest = max(map(len, strata.values()), default=0)
    queue = [strata[name][i] for i in range(deepest) for name in order if i < len(strata[name])]
    return queue[:count]
