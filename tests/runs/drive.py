"""Runs for tests: made by the product's services, executed by its job boundary in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from optimizer.harness import Harness, Limits, Sampling
from optimizer.models import HarnessVersion
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion, Task
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.models import Event, Stream
from orchestrator.jobs import lease
from orchestrator.jobs.errors import Stopped
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, handler_for
from orchestrator.projects.models import Project
from orchestrator.runs.models import Purpose, Rollout, Run
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run
from rubrics.models import Rubric, RubricVersion
from rubrics.versions import create_rubric_version
from tests.doubles.model_server import Asked, ScriptedModel
from tests.waiting import wait_until

RUBRIC = {
    "criteria": [{"id": "reward", "name": "Reward", "kind": "environment_reward", "weight": 1}]
}
SHORT_LIMITS = {
    "connect_timeout_s": 2.0,
    "reset_timeout_s": 2.0,
    "step_timeout_s": 2.0,
    "slot_wait_s": 0.3,
}
FINISH = json.dumps({"op": "noop", "reward": 1.0, "done": True})
"""An action that ends an episode of the fault environment with reward 1."""


def act(**action: Any) -> str:
    return json.dumps(action)


def good(asked: Asked) -> str:
    """Looks once, then ends the episode well."""
    return FINISH if has_acted(asked) else act(text="look")


def has_acted(asked: Asked) -> bool:
    return asked.messages[-2:-1] != [] and asked.messages[-2][0] == "assistant"


def number_of(asked: Asked) -> int:
    """Which task of `make_version` this is, from its prompt."""
    prompt = next(content for role, content in asked.messages if content.startswith("Task "))
    return int(prompt.split()[1].rstrip("."))


def make_version(
    project: Project, base_url: str, *, tasks: int = 3, **settings: Any
) -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=project,
        slug=f"env-{Environment.objects.count()}",
        name="Env",
        kind=EnvironmentKind.URL,
    )
    return create_version(
        environment=environment,
        source={"base_url": base_url},
        settings={**SHORT_LIMITS, **settings},
        tasks=[NewTask(key=f"t{i}", split="test", prompt=f"Task {i}.") for i in range(tasks)],
    )


def make_harness(project: Project, **overrides: Any) -> HarnessVersion:
    fields: dict[str, Any] = {
        "instructions": "Act in JSON.\n",
        "sampling": Sampling(temperature=0.5, max_tokens=400, stop=("\n",)),
        "limits": Limits(max_steps=4),
        **overrides,
    }
    return store_harness(project_id=project.pk, harness=Harness(**fields))


def make_endpoint(project: Project, base_url: str, **overrides: Any) -> ModelEndpoint:
    fields: dict[str, Any] = {
        "name": f"scripted {ModelEndpoint.objects.count()}",
        "kind": EndpointKind.LOCAL,
        "model": "scripted",
        "base_url": base_url,
        **overrides,
    }
    return ModelEndpoint.objects.create(project=project, **fields)


def make_rubric(project: Project) -> RubricVersion:
    rubric, _ = Rubric.objects.get_or_create(project=project, name="reward")
    return create_rubric_version(rubric=rubric, spec=RUBRIC)


def make_run(
    project: Project,
    *,
    version: EnvironmentVersion,
    model_url: str = "http://127.0.0.1:9",
    harness: HarnessVersion | None = None,
    model: ModelEndpoint | None = None,
    replicates: int = 1,
    key: str | None = None,
    **spec: Any,
) -> Run:
    """A run of every task of the version, not started."""
    harness = harness or make_harness(project)
    return create_run(
        key=key,
        plan=[
            PlannedRollout(harness.pk, task, replicate)
            for task in Task.objects.filter(version=version)
            for replicate in range(replicates)
        ],
        spec=RunSpec(
            **{
                "project": project,
                "purpose": Purpose.EVALUATE,
                "label": "a run",
                "environment_version": version,
                "rubric_version": make_rubric(project),
                "model": model or make_endpoint(project, model_url),
                "seed": 7,
                **spec,
            }
        ),
    )


def execute(run: Run) -> Run:
    """Starts the run and works on its job to the end, as a worker does."""
    started = start_run(run=run)
    assert started.job_id is not None
    run_attempt(started.job_id)
    run.refresh_from_db()
    return run


@dataclass
class Attempt:
    """An attempt in a thread of its own: it can be stopped, or robbed of its job."""

    ctx: JobContext
    thread: threading.Thread
    errors: list[Exception]

    def stop(self) -> None:
        """As on SIGTERM: the attempt ends and its job is given back."""
        self.ctx.stop.set()
        self.join()
        assert isinstance(self.errors[0], Stopped)
        lease.release(self.ctx.fence)

    def join(self) -> None:
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()


@contextmanager
def attempt(run: Run) -> Iterator[Attempt]:
    """An attempt without a heartbeat, so that the test decides when its lease ends."""
    started = start_run(run=run)
    assert started.job_id is not None
    claimed = lease.claim(started.job_id)
    assert claimed is not None
    ctx = JobContext(
        job_id=claimed.job.pk,
        spec=claimed.job.spec,
        fence=claimed.fence,
        stop=threading.Event(),
    )
    errors: list[Exception] = []

    def work() -> None:
        from django.db import connections

        try:
            handler_for(claimed.job.kind).run(ctx)
        except Exception as exc:  # the boundary: handed to the test
            errors.append(exc)
        finally:
            connections.close_all()

    made = Attempt(ctx, threading.Thread(target=work, daemon=True), errors)
    made.thread.start()
    try:
        yield made
    finally:
        ctx.stop.set()
        made.thread.join(timeout=60)


def wait_asked(model: ScriptedModel, n: int) -> None:
    wait_until(lambda: len(model.asked) >= n, limit_s=60, what=f"{n} requests to the model")


def drain(limit: int = 200) -> None:
    """Works on queued jobs, oldest first, until none is left."""
    for _ in range(limit):
        job = Job.objects.filter(state=JobState.QUEUED).order_by("id").first()
        if job is None:
            return
        run_attempt(job.pk)
    raise AssertionError(f"more than {limit} jobs")


def rollouts(run: Run) -> list[Rollout]:
    return list(Rollout.objects.filter(run=run).select_related("task", "stream").order_by("id"))


def events(stream_id: int, *kinds: str) -> list[Event]:
    found = Event.objects.filter(stream_id=stream_id).order_by("seq")
    return list(found.filter(kind__in=kinds) if kinds else found)


def kinds_of(rollout: Rollout) -> list[str]:
    return [event.kind for event in events(rollout.stream_id)]


def assert_gapless(streams: Sequence[int] | None = None) -> None:
    """Every log is 1..n, and n is what its stream says."""
    chosen = Stream.objects.all() if streams is None else Stream.objects.filter(pk__in=streams)
    for stream in chosen:
        seqs = [event.seq for event in events(stream.pk)]
        assert seqs == list(range(1, stream.last_seq + 1))
