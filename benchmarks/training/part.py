"""What every part needs: figures on standard output, a limit on memory, works taken in turns."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from benchmarks.figures import Figure

MEMORY_BYTES = 14 << 30
"""Address space of a part: transformers' continuous batching has grown to 14.7 GB on a toy."""


def begin() -> None:
    """One thread, bounded memory."""
    torch.set_num_threads(1)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))


def report(name: str, value: float, bar: float | None = None, *, is_floor: bool = False) -> None:
    """One figure as a line that the parent reads."""
    figure = Figure(f"training.{name}", value, bar, is_floor)
    print(json.dumps({"figure": asdict(figure)}), flush=True)


def cpu_s(work: Callable[[], object]) -> float:
    """Processor seconds of this process for one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def in_turns(works: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Fewest processor seconds of each work, taken in turns.

    The fewest, because what another process does to a shared cache or core only ever adds.
    """
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, times in zip(works, seconds, strict=True):
            times.append(cpu_s(work))
    return [min(times) for times in seconds]
