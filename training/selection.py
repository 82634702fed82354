"""Which weights a training job ends with: the best on held-out tasks, never simply the last.

Pure. Only evaluations on the split `select` come here; `test` is read once, by whoever claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.jobs.folder import Evaluation


@dataclass(frozen=True, slots=True)
class Choice:
    """The step whose weights are the result, and why."""

    step: int
    mean: float | None
    reason: str


def best(evaluations: Sequence[Evaluation], *, min_coverage: float) -> Evaluation | None:
    """The best of the steps above 0; the earlier of equals, which has moved less from the start."""
    usable = [
        each
        for each in evaluations
        if each.step > 0 and each.mean is not None and each.coverage >= min_coverage
    ]
    return max(usable, key=lambda each: (each.mean or 0.0, -each.step), default=None)


def choose(evaluations: Sequence[Evaluation], *, last_step: int, min_coverage: float) -> Choice:
    """The result of a job that has come to its last step."""
    found = best(evaluations, min_coverage=min_coverage)
    if found is None:
        why = (
            "no evaluation has enough scored rollouts"
            if evaluations
            else "no held-out evaluation was asked for"
        )
        return Choice(last_step, None, f"The last step: {why}.")
    reason = f"Step {found.step}: {found.mean:.3f} on {found.n_scored} held-out rollouts"
    start = next((each for each in evaluations if each.step == 0), None)
    if start is not None and start.mean is not None and start.coverage >= min_coverage:
        reason += f", {start.mean:.3f} before training"
        if found.mean is not None and found.mean <= start.mean:
            reason += "; no step does better than the start"
    return Choice(found.step, found.mean, f"{reason}.")
