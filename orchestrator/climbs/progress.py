"""How far a rung is, as a share of the rollouts it is expected to need.

A search ends when its certificate is decided, so its size is an expectation; the share never falls
and reaches 1 only when the rung has its verdict.
"""

from __future__ import annotations

from django.db.models import Count, Q

from orchestrator.climbs.models import Climb, ClimbRun, Phase, Rung, RungKind
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.environments.models import Split, Task
from orchestrator.events.services import NewEvent, append
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout

EXPECTED_CERTIFY_PAIRS = 12
"""A clear gain is certified in 8 to 12 pairs; the cap is far above."""
ALMOST = 0.99


def expected_rollouts(climb: Climb, kind: str) -> int:
    settings = ClimbSettings.from_json(climb.config)
    tests = settings.test_replicates * (
        Task.objects.filter(version_id=climb.environment_version_id, split=Split.TEST).count()
    )
    if kind == RungKind.BASELINE:
        return tests
    if kind == RungKind.HARNESS:
        search = settings.search
        screen = search.blocks * search.tasks_per_block
        race = search.race_candidates * search.race_tasks
        return search.evidence_tasks + screen + race + 2 * EXPECTED_CERTIFY_PAIRS + tests
    train = settings.train
    held_out = len(train.evaluated_steps()) * train.evaluate_rollouts
    return train.steps * train.groups * train.samples + held_out + tests


def note_progress(*, climb_run: ClimbRun, done: int, planned: int) -> None:
    """Needs a transaction. One query for the count, one event on the climb's stream."""
    climb = climb_run.climb
    rung = Rung.objects.get(climb=climb, index=climb_run.rung_index)
    finished = Rollout.objects.filter(
        run__climb_run__climb=climb, run__climb_run__rung_index=rung.index
    ).aggregate(n=Count("id", filter=~Q(state__in=OPEN_ROLLOUT_STATES)))["n"]
    share = min(ALMOST, finished / max(1, expected_rollouts(climb, rung.kind)))
    progress = max(rung.progress, share)
    doing = f"{_doing(climb_run)}: {done} of {planned} rollouts"
    Rung.objects.filter(pk=rung.pk).update(progress=progress, doing=doing)
    append(
        stream_id=climb.stream_id,
        items=[
            NewEvent(
                "progress",
                {
                    "rung": rung.index,
                    "progress": progress,
                    "doing": doing,
                    "done": done,
                    "total": planned,
                },
            )
        ],
    )


def _doing(climb_run: ClimbRun) -> str:
    if climb_run.phase in (Phase.BASELINE, Phase.HARNESS_TEST, Phase.ECHO_TEST):
        return "Sealed test"
    return climb_run.run.label
