"""A climb survives SIGKILL of each of its processes, in the middle of each rung.

One climb with a random model of two layers is killed at seven moments: worker and model server in
the baseline, worker and `up` in the search, trainer, its worker and `up` in the ECHO rung. It must
end, with no rollout twice, none lost, gapless logs, and nothing missing or repeated for a client
that follows it live and connects again as a browser does.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from django.db.models import Count

from orchestrator.climbs.models import ENDED_CLIMB_STATES, Climb, ClimbState, Phase
from orchestrator.events.models import Event, Stream
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout, RolloutState, Run
from tests.base import People
from tests.climbs.small import make_climb, tiny_model
from tests.follower import Follower
from tests.live import LiveStack, MakeStack
from tests.waiting import wait_until

FAST_LEASES = {
    "SWITCHBACK_JOB_LEASE_S": "3",
    "SWITCHBACK_JOB_BEAT_S": "0.5",
    "SWITCHBACK_JOB_GRACE_S": "1",
}


@pytest.fixture
def stack(make_stack: MakeStack, tmp_path: Path) -> LiveStack:
    model = tiny_model(tmp_path / "tiny")
    made = make_stack(arguments=[], environ={**FAST_LEASES, "SWITCHBACK_MODEL_DIR": str(model)})
    made.start()
    return made


@pytest.mark.slow
def test_a_climb_ends_once_whatever_is_killed(stack: LiveStack, people: People) -> None:
    climb = make_climb(project=people.project, actor=people.owner)
    follower = Follower(stack, climb.stream, people.member)
    follower.start()

    wait_until(lambda: ended(climb, Phase.BASELINE) >= 3, limit_s=60, what="baseline rollouts")
    stack.kill_child("worker")
    wait_until(lambda: ended(climb, Phase.BASELINE) >= 8, limit_s=60, what="more of the baseline")
    stack.kill_child("model")

    wait_until(lambda: ended(climb, Phase.SEARCH) >= 2, limit_s=90, what="search rollouts")
    stack.kill_child("worker")
    wait_until(lambda: ended(climb, Phase.SEARCH) >= 5, limit_s=90, what="more of the search")
    restart(stack)

    wait_until(lambda: ended(climb, Phase.TRAIN) >= 2, limit_s=120, what="training rollouts")
    kill_trainer(stack)
    wait_until(lambda: ended(climb, Phase.TRAIN) >= 7, limit_s=120, what="step 2 of the training")
    stack.kill_child("gpu")
    wait_until(lambda: ended(climb, Phase.TRAIN) >= 13, limit_s=120, what="step 3 of the training")
    restart(stack)

    wait_until(lambda: has_ended(climb), limit_s=240, what=f"end of the climb; {stack.output}")
    climb.refresh_from_db()
    assert climb.state == ClimbState.COMPLETED, climb.error
    assert all(rung.verdict for rung in climb.rungs.all())
    check_rollouts(climb)
    check_logs()
    climb.stream.refresh_from_db()
    follower.last_seq = climb.stream.last_seq
    follower.join(timeout=60)
    assert follower.seqs == list(range(1, climb.stream.last_seq + 1))
    assert follower.connections >= 3  # `up` was killed twice meanwhile


def ended(climb: Climb, phase: Phase) -> int:
    return (
        Rollout.objects.filter(run__climb_run__climb=climb, run__climb_run__phase=phase)
        .exclude(state__in=OPEN_ROLLOUT_STATES)
        .count()
    )


def has_ended(climb: Climb) -> bool:
    return Climb.objects.filter(pk=climb.pk, state__in=ENDED_CLIMB_STATES).exists()


def restart(stack: LiveStack) -> None:
    """SIGKILL for `up` alone, then `make up` as a person would."""
    stack.kill()
    stack.start()


def kill_trainer(stack: LiveStack) -> None:
    assert stack.process is not None

    def trainers() -> list[psutil.Process]:
        tree = psutil.Process(stack.process.pid).children(recursive=True)  # type: ignore[union-attr]
        return [p for p in tree if _is(p, "training.jobs.runner")]

    wait_until(lambda: bool(trainers()), limit_s=60, what="a trainer")
    for process in trainers():
        os.kill(process.pid, signal.SIGKILL)


def _is(process: psutil.Process, word: str) -> bool:
    try:
        return word in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def check_rollouts(climb: Climb) -> None:
    rollouts = Rollout.objects.filter(run__climb_run__climb=climb)
    assert not rollouts.filter(state__in=OPEN_ROLLOUT_STATES).exists()
    twice = rollouts.values("run", "harness", "task", "replicate").annotate(n=Count("id"))
    assert not twice.filter(n__gt=1).exists()
    assert not rollouts.filter(state=RolloutState.ERRORED, message="").exists()
    for run in Run.objects.filter(climb_run__climb=climb):
        assert run.has_ended
    # Each ended exactly once, and what came after a kill says so.
    for rollout in rollouts.select_related("stream"):
        kinds = list(rollout.stream.events.order_by("seq").values_list("kind", flat=True))
        assert kinds.count("rollout.ended") == 1
        assert kinds[-1] == "rollout.ended"
        assert kinds.count("rollout.started") == 1
        assert kinds.count("rollout.restarted") == (rollout.attempt > 1)
    assert rollouts.filter(attempt__gt=1).exists(), "no kill hit a rollout"


def check_logs() -> None:
    """Every stream's sequence is 1..n, and n is what the stream says."""
    for stream in Stream.objects.all():
        seqs = list(
            Event.objects.filter(stream=stream).order_by("seq").values_list("seq", flat=True)
        )
        assert seqs == list(range(1, stream.last_seq + 1))
