"""Tasks as a search sees them, and in which order they are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from optimizer.seeds import shuffled


@dataclass(frozen=True)
class TaskRef:
    key: str
    """Unique over all splits, so that equal positions in two splits are never confused."""
    stratum: str = ""
    """For instance the family; guards and the order of tasks look at it."""


def passes(tasks: Sequence[TaskRef], *seed: str | int) -> Iterator[TaskRef]:
    """Shuffled passes over the tasks without end, the strata taking turns within a pass.

    Any few tasks in a row therefore cover the strata evenly, and blocks that ran on different
    tasks can be compared.
    """
    turn = 0
    while tasks:
        strata: dict[str, list[TaskRef]] = {}
        for task in shuffled(tasks, *seed, turn):
            strata.setdefault(task.stratum, []).append(task)
        queues = list(strata.values())
        for i in range(max(len(queue) for queue in queues)):
            yield from (queue[i] for queue in queues if i < len(queue))
        turn += 1
