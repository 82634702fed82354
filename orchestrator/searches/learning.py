"""What a search may learn from: the score of a rollout without criteria that are barred.

A search keeps the set that it began with, since its certificate counts pairs in one currency. The
sealed test is read by the whole rubric.
"""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.models import Search, SearchRun
from orchestrator.grading.policies import barred
from rubrics.models import RubricVersion

WHOLE = ("preflight", "recheck", "test")
"""Phases whose scores are those of the whole rubric."""


def left_out_for(search: Search, phase: str) -> tuple[dict[str, str], bool]:
    """For a run that is asked for now: what is left out, and whether that is news."""
    if phase in WHOLE:
        return {}, False
    first = first_run(search)
    if first is not None:
        return first.left_out, False
    assert search.rubric_version is not None
    left_out = barred(search.rubric_version.rubric_id)
    ids = {raw.get("id") for raw in search.rubric_version.spec.get("criteria") or ()}
    left_out = {id: why for id, why in left_out.items() if id in ids}
    return left_out, bool(left_out)


def left_out_of(search: Search) -> dict[str, str]:
    first = first_run(search)
    return first.left_out if first else {}


def first_run(search: Search) -> SearchRun | None:
    return search.search_runs.exclude(phase__in=WHOLE).order_by("id").first()


def words(rubric: RubricVersion, left_out: Mapping[str, str]) -> str:
    """For a log."""
    if not left_out:
        return "All criteria count again in what is learned from: none is barred any more."
    said = "; ".join(f"{name_of(rubric, id)} ({why})" for id, why in left_out.items())
    what = "barred criteria" if len(left_out) > 1 else "a barred criterion"
    return f"Nothing is learned from {what}: {said}. Scores on the ladder keep the whole rubric."


def name_of(rubric: RubricVersion, criterion: str) -> str:
    for raw in rubric.spec.get("criteria") or ():
        if raw.get("id") == criterion:
            return str(raw.get("name") or criterion)
    return criterion
