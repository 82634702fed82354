"""F36 of the fault vectors: the process that drives the rollouts is killed, and another goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.jobs.services import sweep
from orchestrator.runs import queries
from orchestrator.runs.models import Rollout, RolloutState, RunState
from orchestrator.runs.services import start_run
from tests.base import People
from tests.doubles.model_server import Asked
from tests.jobs.workers import BEAT_S, GRACE_S, LEASE_S, Workers, workers_in
from tests.openenv_faults import VECTORS
from tests.runs.conftest import MakeModel
from tests.runs.drive import assert_gapless, events, kinds_of, make_endpoint, make_run, make_version
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
CASE = next(case for case in VECTORS["cases"] if case["id"] == "F36")


@pytest.fixture(autouse=True)
def short_leases(settings: Any) -> None:
    settings.JOB_LEASE_S, settings.JOB_BEAT_S, settings.JOB_GRACE_S = LEASE_S, BEAT_S, GRACE_S


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with workers_in(tmp_path) as started:
        yield started


@pytest.mark.slow
def test_a_rollout_whose_worker_is_killed_ends_and_a_retry_names_it(
    people: People, fault_url: str, make_model: MakeModel, workers: Workers
) -> None:
    script = CASE["provoke"]["actions"]

    def reply(asked: Asked) -> str:
        done = sum(role == "assistant" for role, _ in asked.messages)
        return json.dumps(script[done])

    version = make_version(people.project, fault_url, tasks=1, step_timeout_s=10.0)
    version.tasks.update(reset=CASE["provoke"]["reset"])
    model = make_model(reply)
    endpoint = make_endpoint(people.project, model.url, kind="openai", supports_tools=False)
    run = make_run(people.project, version=version, model=endpoint)
    (first,) = Rollout.objects.filter(run=run)
    start_run(run=run)
    worker = workers.start()

    def step_2_runs() -> bool:
        sweep()
        return kinds_of(first).count("action") == 2

    wait_until(step_2_runs, limit_s=60, what="step 2")
    worker.kill()
    workers.start()

    def is_over() -> bool:
        sweep()
        run.refresh_from_db()
        return run.has_ended

    wait_until(is_over, limit_s=60, what="the end of the run")
    first = Rollout.everything.get(pk=first.pk)
    expect = CASE["expect"]
    assert (first.state, first.cause) == (expect["rollout_state"], expect["cause"])
    assert (first.message, first.n_steps) == (expect["message"], expect["steps_completed"])
    assert (first.reward, first.score, first.is_replaced) == (None, None, True)
    assert [e.payload["reward"] for e in events(first.stream_id, "observation")] == [0.25]
    assert kinds_of(first)[-1] == "rollout.ended"

    (retry,) = Rollout.objects.filter(run=run)
    assert retry.pk != first.pk
    assert retry.retry_of == first
    assert (retry.state, retry.reward, retry.attempt) == (RolloutState.SCORED, 1.0, 2)
    assert (retry.seed, retry.task_id, retry.replicate) == (first.seed, first.task_id, 0)
    (restarted,) = events(retry.stream_id, "rollout.restarted")
    assert restarted.payload == {"attempt": 2, "reason": first.message, "rollout": first.pk}
    assert kinds_of(retry).count("rollout.ended") == kinds_of(first).count("rollout.ended") == 1
    tally = queries.tally(run.pk)
    assert (run.state, tally.planned, tally.scored) == (RunState.COMPLETED, 1, 1)
    assert_gapless()
