"""How the model samples: levels of temperature, top-p and length as one factor.

They are alternatives of one another because their effects are not independent: a high temperature
with a low top-p is another thing than either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from optimizer.edits import Edit, Op
from optimizer.harness import CONFIG, Harness
from optimizer.operators.evidence import Trace
from optimizer.skills import estimated_tokens

GROUP = "sampling"
TEMPERATURES = (0.0, 0.3, 0.7, 1.0)
TOP_P = 0.9
"""Beside a high temperature: the tail of improbable words is what spoils an action."""
CUT_AT_SHARE = 0.9
"""Of the length limit; an action so long was probably cut."""
LONGER, ROOM = 4, 3
"""Limits that are tried: so many times as long as now, or as the longest action of a pass."""
LEAST_TOKENS = 16


def sampling_levels(harness: Harness, attempts: Sequence[Trace], *, support: int) -> list[Edit]:
    """Alternatives to the seed's settings. `support`: distinct tasks that failed with these.

    A limit of length is only proposed where the attempts show that it matters: longer where actions
    were cut, shorter where they are far below it.
    """
    sampling = harness.sampling
    fields = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop),
        "top_p": sampling.top_p,
    }
    return [
        Edit(
            Op.SET,
            CONFIG,
            anchor="sampling",
            content=json.dumps(fields | changes, ensure_ascii=False),
            operator="sampling." + "_".join(changes),
            support=max(support, n_tasks),
            group=GROUP,
        )
        for changes, n_tasks in _changes(harness, attempts)
        if any(fields[name] != value for name, value in changes.items())
    ]


def _changes(harness: Harness, attempts: Sequence[Trace]) -> Iterator[tuple[dict[str, float], int]]:
    """What differs from the seed's settings, and the tasks that speak for it."""
    sampling = harness.sampling
    for temperature in TEMPERATURES:
        yield {"temperature": temperature}, 0
    yield {"temperature": TEMPERATURES[-1], "top_p": TOP_P}, 0
    lengths = {
        (trace.task, estimated_tokens(step.action)) for trace in attempts for step in trace.moves
    }
    cut = {task for task, tokens in lengths if tokens >= CUT_AT_SHARE * sampling.max_tokens}
    if cut:
        yield {"max_tokens": sampling.max_tokens * LONGER}, len(cut)
    elif lengths:
        longest = max(tokens for _, tokens in lengths)
        enough = max(LEAST_TOKENS, longest * ROOM)
        if 2 * enough <= sampling.max_tokens:
            yield {"max_tokens": enough}, len({task for task, _ in lengths})
