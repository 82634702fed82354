"""Demonstrations from reference transcripts and from the agent's own successes.

Chosen are the shortest of each stratum, the strata taking turns: short ones cost few tokens in
every later rollout, and different ones teach more than similar ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optimizer.edits import Edit, demonstration_edit
from optimizer.harness import Demonstration
from optimizer.operators.evidence import Trace
from optimizer.seeds import derive

MAX_CHARS = 4_000
"""Longer traces are no demonstrations; four of them would fill a small model's context."""


def from_references(traces: Iterable[Trace], *, count: int, seed: int) -> list[Edit]:
    """At most `count` edits that each add one author's transcript."""
    return _edits(traces, count, seed, operator="demonstrations.reference", suffix="")


def from_successes(
    traces: Iterable[Trace], *, count: int, seed: int, at_least: float = 1.0
) -> list[Edit]:
    """At most `count` edits that each add one of the agent's attempts that scored `at_least`."""
    good = [trace for trace in traces if trace.score is not None and trace.score >= at_least]
    return _edits(good, count, seed, operator="demonstrations.success", suffix="-own")


def _edits(
    traces: Iterable[Trace], count: int, seed: int, *, operator: str, suffix: str
) -> list[Edit]:
    usable = [trace for trace in traces if _is_whole(trace) and trace.size_chars <= MAX_CHARS]
    return [
        demonstration_edit(
            Demonstration(f"{trace.task}{suffix}", tuple(map(dict, trace.messages)), trace.task),
            operator=operator,
            support=1,
            sources=(trace.task,),
        )
        for trace in _spread(usable, count, seed)
    ]


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
