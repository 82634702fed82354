"""Many rollouts in one process, and how its memory grows: by a line through what was seen.

The run is a real one (job, sessions on a real environment server, every event committed, graded);
the agent's side always says the same, so that no model is needed. In waves: a run holds a wave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks.stack import use_temporary_data

STEPS = 4
WAVE = 500
_PAGE_MB = 4_096 / 2**20


@dataclass(frozen=True)
class Soaked:
    rate_hz: float
    last_mb: float
    slope_mb: float
    """Of 1,000 rollouts, over the last four fifths."""


def soaked(n_rollouts: int, concurrent: int) -> Soaked:
    from benchmarks import rollouts
    from benchmarks.rollouts import _Engine, _server

    with use_temporary_data(), _server("plain") as url:
        rollouts.STEPS = {**rollouts.STEPS, "plain": {concurrent: STEPS}}
        engine = _Engine("plain", url)
        seen: list[tuple[int, float]] = []
        done, wall_s = 0, 0.0
        while done < n_rollouts:
            wave = min(WAVE, n_rollouts - done)
            wall_s += engine.batch(wave, STEPS, concurrency=concurrent).wall_s
            done += wave
            seen.append((done, _memory_mb()))
    kept = [pair for pair in seen if pair[0] > n_rollouts / 5] or seen
    return Soaked(done / wall_s, seen[-1][1], 1_000 * _slope(kept))


def _slope(pairs: list[tuple[int, float]]) -> float:
    """Of the least squares; NaN for less than three points, which show no trend."""
    n = len(pairs)
    mean_x = sum(x for x, _ in pairs) / n
    mean_y = sum(y for _, y in pairs) / n
    spread = sum((x - mean_x) ** 2 for x, _ in pairs)
    return sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread if n > 2 else math.nan


def _memory_mb() -> float:
    """Resident, of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_MB
