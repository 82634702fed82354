"""A worker that is told to stop finishes the episodes that it has begun, and begins no other."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from orchestrator.environments.models import EnvironmentVersion
from orchestrator.jobs import execution
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.services import enqueue
from orchestrator.runs.models import RolloutState, RunState
from tests.base import People
from tests.doubles.model_server import Asked
from tests.runs.conftest import MakeModel
from tests.runs.drive import (
    FINISH,
    assert_gapless,
    attempt,
    execute,
    make_run,
    make_version,
    rollouts,
    wait_asked,
)

pytestmark = pytest.mark.django_db(transaction=True)


def states(run: Any) -> list[str]:
    return sorted(rollout.state for rollout in rollouts(run))


@pytest.mark.parametrize("slots", [0, 2])
def test_what_has_begun_ends_and_what_waits_is_left(
    people: People, fault_url: str, make_model: MakeModel, settings: Any, slots: int
) -> None:
    """`slots`: of the server, where those and not the run's own number hold rollouts back."""
    settings.DRAIN_S = 600
    gate = threading.Event()

    def script(asked: Asked) -> str:
        gate.wait(60)
        return FINISH

    model = make_model(script)
    version = make_version(people.project, fault_url, tasks=5)
    if slots:
        EnvironmentVersion.objects.filter(pk=version.pk).update(resources={"slots": slots})
    run = make_run(
        people.project, version=version, model_url=model.url, concurrency=5 if slots else 2
    )
    with attempt(run) as first:
        wait_asked(model, 2)
        first.ctx.stop.set()
        gate.set()
        first.stop()
    assert states(run) == [RolloutState.PENDING] * 3 + [RolloutState.SCORED] * 2
    assert len(model.asked) == 2

    execute(run)
    assert run.state == RunState.COMPLETED
    assert {rollout.attempt for rollout in rollouts(run)} == {1}
    assert len(model.asked) == 5, "nothing was asked twice"
    assert_gapless()


def test_an_episode_that_takes_longer_is_cut_off(
    people: People, fault_url: str, make_model: MakeModel, settings: Any
) -> None:
    settings.DRAIN_S = 1
    gate = threading.Event()

    def script(asked: Asked) -> str:
        gate.wait(60)
        return FINISH

    model = make_model(script)
    version = make_version(people.project, fault_url, tasks=1)
    run = make_run(people.project, version=version, model_url=model.url)
    with attempt(run) as first:
        wait_asked(model, 1)
        first.stop()
        gate.set()
    assert states(run) == [RolloutState.RUNNING]
    execute(run)
    assert [rollout.attempt for rollout in rollouts(run)] == [2]


def test_a_stopping_worker_claims_nothing_and_lets_others_know(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.events.services import create_stream
    from orchestrator.jobs.clock import instant

    stopping = threading.Event()
    stopping.set()
    monkeypatch.setattr(execution, "STOPPING", stopping)
    stream = create_stream(project=people.project, kind="run")
    job = enqueue(kind="fault.count", spec={"stream_id": stream.pk, "n": 1})
    execution.run_attempt(job.pk)
    job.refresh_from_db()
    assert (job.state, job.attempt) == (JobState.QUEUED, 0)
    assert Job.objects.filter(pk=job.pk, lease_until__lte=instant()).exists()
