"""What holds of every past rollout that is graded again. Pure."""

from __future__ import annotations

from orchestrator.runs.models import Rollout, RolloutState

GRADING = "grading"
"""Cause of a rollout whose episode has a result that could not be scored."""


GONE = "Its trace has gone by the project's rule of retention; its score of then stays."


def why_not_graded(rollout: Rollout, *, is_gone: bool = False) -> str:
    """Why its episode has no result, which no rubric can change; empty if it has one.

    A trace that broke off would be graded on what happens to be there: a rollout that errored in
    its environment has no score under any rubric.
    """
    if rollout.state == RolloutState.ERRORED and rollout.cause != GRADING:
        return f"The episode has no result: {rollout.message}"
    return GONE if is_gone else ""
