"""Edits for a climb's search, from the reference transcripts of the train split."""

from __future__ import annotations

from collections.abc import Iterable

from optimizer.edits import Edit
from optimizer.operators import Trace, from_references, instruction_pool
from orchestrator.climbs.settings import SearchSettings
from orchestrator.environments.models import Task


def propose_edits(tasks: Iterable[Task], *, settings: SearchSettings, seed: int) -> list[Edit]:
    """Demonstrations spread over the task families, then ways to word the instructions."""
    traces = [
        Trace(
            task=task.key,
            messages=[{"role": "user", "content": task.prompt}, *task.reference],
            stratum=task.family,
        )
        for task in tasks
        if task.reference
    ]
    return [
        *from_references(traces, count=settings.demonstrations, seed=seed),
        *instruction_pool(support=len(traces)),
    ]
