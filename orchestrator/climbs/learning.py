"""What a climb may learn from: the score of a rollout without criteria that are barred.

The scores on the ladder and of the sealed test are those of the whole rubric. What the search ranks
edits by, what it certifies on, what training is rewarded by and what the sampler draws tasks by is
the score without barred criteria. A search keeps the set that it began with, since its certificate
counts pairs in one currency; training takes what is barred when a step asks for its rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.climbs.models import Climb, ClimbRun, Phase
from orchestrator.grading.policies import barred, rewards
from orchestrator.runs.models import Purpose, Rollout, Run
from orchestrator.searches.learning import name_of as name_in
from orchestrator.searches.learning import words as words_on

LEARNS = (Purpose.OPTIMISE, Purpose.CERTIFY, Purpose.TRAIN)
_REST = "The reward was the score without it."


def left_out_for(climb: Climb, purpose: str) -> tuple[dict[str, str], bool]:
    """For a run that is asked for now: what is left out, and whether that differs from before."""
    if purpose not in LEARNS:
        return {}, False
    earlier = ClimbRun.objects.filter(climb=climb, run__purpose__in=LEARNS).order_by("id")
    first_of_search = earlier.filter(phase=Phase.SEARCH).first()
    if purpose != Purpose.TRAIN and first_of_search is not None:
        return first_of_search.left_out, False
    left_out = barred(climb.rubric_version.rubric_id)
    ids = {raw.get("id") for raw in climb.rubric_version.spec.get("criteria") or ()}
    left_out = {id: why for id, why in left_out.items() if id in ids}
    last = earlier.last()
    return left_out, set(left_out) != set(last.left_out if last else {})


def words(climb: Climb, left_out: Mapping[str, str]) -> str:
    """For the climb's log."""
    return words_on(climb.rubric_version, left_out)


def name_of(climb: Climb, criterion: str) -> str:
    return name_in(climb.rubric_version, criterion)


def left_out_of_search(climb: Climb) -> dict[str, str]:
    first = ClimbRun.objects.filter(climb=climb, phase=Phase.SEARCH).order_by("id").first()
    return first.left_out if first else {}


def rewards_of_run(run: Run) -> dict[int, float | None]:
    """What each rollout is worth to whoever learns from this run."""
    climb_run = ClimbRun.objects.filter(run=run).first()
    rollouts = run.rollouts.select_related("run__rubric_version")
    return rewards(rollouts, climb_run.left_out if climb_run else {})


def reward_of(rollout: Rollout, left_out: Mapping[str, str]) -> float | None:
    return rewards([rollout], left_out)[rollout.pk] if left_out else rollout.score


def notes_on(climb: Climb) -> list[str]:
    """What a reader of its training must know of its rewards: criteria that were left out, and
    those that are barred and still count in the steps that have run.
    """
    steps = list(
        ClimbRun.objects.filter(climb=climb, run__purpose=Purpose.TRAIN)
        .order_by("id")
        .values_list("left_out", flat=True)
    )
    held = barred(climb.rubric_version.rubric_id)
    notes = []
    left_out = {id: why for step in steps for id, why in step.items()}
    for id, why in left_out.items():
        n = sum(id in step for step in steps)
        part = "every step" if n == len(steps) else f"{n} of {len(steps)} steps"
        again = "" if id in held else " It is allowed again since."
        notes.append(f"{name_of(climb, id)} was barred in {part}: {why}. {_REST}{again}")
    known = {raw.get("id") for raw in climb.rubric_version.spec.get("criteria") or ()}
    for id, why in held.items():
        if id in known and id not in left_out:
            since = f" {len(steps)} steps have learned from it." if steps else ""
            notes.append(f"{name_of(climb, id)} is barred: {why}.{since} Steps to come do not.")
    return notes
