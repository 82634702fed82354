"""Steps per second through the whole engine against OpenEnv's bare client, on the same server.

The engine runs a real run as a worker does: job, lease, admission, sessions, every event committed
to SQLite, grading, tallies. The agent's side is a conversation inside the engine's process that
always says the same, so that the figures are about the engine and not about a model. The bare
client is `GenericEnvClient` in a process of its own, with the same number of sessions and steps.
Both take turns on one server process; a figure is the median of the ratios of neighbours, so that
what else the machine does counts for both alike. Reset and close of each episode are included on
both sides.

Two environments: `tools` costs its server some 2 ms a step, as MCP environments do, `plain` some
0.2 ms. Beside the ratio, the processor time that the engine spends on a step beyond the client's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from benchmarks.children import tied
from benchmarks.figures import Figure
from benchmarks.stack import ROOT, free_port, use_temporary_data

RATIO_BAR = 0.6
OVERHEAD_BAR_MS = {"tools": 2.0, "plain": 2.0}
"""Reported for comparison; a step that costs more than this would be a defect."""
STEPS = {
    "tools": {1: 300, 8: 60, 32: 30, 128: 20},
    "plain": {1: 1000, 8: 200, 32: 100, 128: 50},
}
"""Of each episode, by the number of sessions side by side: a batch takes one to a few seconds."""
REPEATS = int(os.environ.get("BENCH_REPEATS", "5"))
SLOTS = 160
ACTIONS: dict[str, dict[str, Any]] = {
    "plain": {"message": "hello there"},
    "tools": {
        "type": "call_tool",
        "tool_name": "echo_message",
        "arguments": {"message": "hello there"},
    },
}


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float


def run() -> Iterator[Figure]:
    """A ratio and an overhead for each environment and number of sessions."""
    with use_temporary_data():
        for kind in STEPS:
            with _server(kind) as url, _client(url) as client:
                engine = _Engine(kind, url)
                for sessions, steps in STEPS[kind].items():
                    yield from _compare(kind, sessions, steps, client, engine)


def _compare(
    kind: str, sessions: int, steps: int, client: _Client, engine: _Engine
) -> Iterator[Figure]:
    bare: list[Cost] = []
    ours: list[Cost] = []
    for repeat in range(-1, REPEATS):  # one pair to warm up
        pair = (
            client.batch(sessions=sessions, steps=steps, action=ACTIONS[kind]),
            engine.batch(sessions, steps),
        )
        if repeat >= 0:
            bare.append(pair[0])
            ours.append(pair[1])
    n = sessions * steps
    ratios = [a.wall_s / b.wall_s for a, b in zip(bare, ours, strict=True)]
    name = f"rollouts.{kind}.{sessions}"
    _remark(
        f"{name}: bare {n / _median(bare):.0f} steps/s, engine {n / _median(ours):.0f} steps/s, "
        f"ratios {min(ratios):.2f} to {max(ratios):.2f}"
    )
    yield Figure(f"{name}.ratio", statistics.median(ratios), RATIO_BAR, is_floor=True)
    overhead_s = statistics.median(b.cpu_s - a.cpu_s for a, b in zip(bare, ours, strict=True))
    yield Figure(f"{name}.overhead_cpu_ms", 1000 * overhead_s / n, OVERHEAD_BAR_MS[kind])


def _median(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.wall_s for cost in costs)


def _remark(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- the bare client ----------------------------------------------------------------------------


class _Client:
    def __init__(self, asks: IO[str], answers: IO[str]) -> None:
        self._asks, self._answers = asks, answers

    def batch(self, **asked: Any) -> Cost:
        self._asks.write(json.dumps(asked) + "\n")
        self._asks.flush()
        return Cost(**json.loads(self._answers.readline()))


@contextmanager
def _client(url: str) -> Iterator[_Client]:
    command = [sys.executable, "-m", "benchmarks.rollouts_client", url]
    with subprocess.Popen(
        tied(command), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield _Client(process.stdin, process.stdout)
        finally:
            process.stdin.close()
            process.wait(timeout=30)


@contextmanager
def _server(kind: str) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "benchmarks.rollouts_server", kind, str(port), str(SLOTS)]
    with subprocess.Popen(tied(command), cwd=ROOT) as process:
        try:
            deadline_s = time.monotonic() + 60
            while not _answers(f"{url}/health"):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"the {kind} environment does not answer at {url}")
                time.sleep(0.05)
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


# --- the engine ---------------------------------------------------------------------------------


class _Engine:
    """Runs on one environment version, executed in this process as a worker does."""

    def __init__(self, kind: str, url: str) -> None:
        from optimizer.harness import Harness, Limits
        from optimizer.store import store_harness
        from orchestrator.agents.models import ModelEndpoint
        from orchestrator.environments.models import Environment
        from orchestrator.environments.services import NewTask, create_version
        from orchestrator.projects.models import User
        from orchestrator.projects.services import create_project
        from orchestrator.runs import engine
        from rubrics.models import Rubric
        from rubrics.versions import create_rubric_version

        self._reply = json.dumps(ACTIONS[kind])
        user = User.objects.create_user(f"bench-{kind}")
        self._project = create_project(actor=user, name=f"Bench {kind}")
        environment = Environment.objects.create(
            project=self._project, slug=kind, name=kind, kind="url"
        )
        self._versions = {
            steps: create_version(
                environment=environment,
                source={"base_url": url},
                # The episodes of the bare client do not end either.
                settings={"max_steps": steps, "truncation_reward": 0.0},
                resources={"slots": SLOTS},
                tasks=[NewTask(key="t", split="test", prompt="Say hello.")],
            )
            for steps in STEPS[kind].values()
        }
        rubric = Rubric.objects.create(project=self._project, name="reward")
        criterion = {"id": "reward", "name": "Reward", "kind": "environment_reward", "weight": 1}
        self._rubric = create_rubric_version(rubric=rubric, spec={"criteria": [criterion]})
        self._harness = store_harness(
            project_id=self._project.pk,
            harness=Harness(instructions="Act in JSON.\n", limits=Limits(max_steps=64)),
        )
        self._model = ModelEndpoint.objects.create(
            project=self._project, name="scripted", kind="openai", model="scripted"
        )
        engine.conversation_for = lambda *_: _Scripted(self._reply)

    def started(self, sessions: int, steps: int, concurrency: int) -> Any:
        """A run of `sessions` rollouts, so many side by side, queued for a worker."""
        from orchestrator.runs.models import Purpose
        from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run

        version = self._versions[steps]
        run = create_run(
            plan=[
                PlannedRollout(self._harness.pk, version.tasks.get(), replicate)
                for replicate in range(sessions)
            ],
            spec=RunSpec(
                project=self._project,
                purpose=Purpose.EVALUATE,
                label="bench",
                environment_version=version,
                rubric_version=self._rubric,
                model=self._model,
                seed=1,
                concurrency=concurrency,
            ),
        )
        return start_run(run=run)

    def batch(self, sessions: int, steps: int, *, concurrency: int | None = None) -> Cost:
        """`sessions` rollouts, all side by side unless `concurrency` says less."""
        from orchestrator.jobs.execution import run_attempt

        run = self.started(sessions, steps, concurrency or sessions)
        job_id = run.job_id
        assert job_id is not None
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        run_attempt(job_id)
        cost = Cost(time.perf_counter() - wall_s, time.process_time() - cpu_s)
        run.refresh_from_db()
        counted = run.stream.project.streams.filter(rollout__run=run)
        done = list(run.rollouts.values_list("state", "n_steps"))
        if done != [("scored", steps)] * sessions:
            raise RuntimeError(f"{run.error or done[:3]}")
        n_events = sum(counted.values_list("last_seq", flat=True))
        if n_events < 2 * steps * sessions:
            raise RuntimeError(f"only {n_events} events of {sessions * steps} steps are stored")
        return cost


class _Scripted:
    """A model that always says the same and costs nothing."""

    def __init__(self, reply: str) -> None:
        from orchestrator.agents.types import Completion

        self._completion = Completion(
            text=reply, finish_reason="stop", tokens_in=100, tokens_out=20, latency_s=0.0
        )

    async def takes_functions(self) -> bool:
        return False

    async def start(self, messages: Any, functions: Any = ()) -> None:
        """Nothing to remember."""

    async def act(self, *, seed: int) -> Any:
        return self._completion

    async def observe(self, segments: Any) -> None:
        """Nothing to remember."""

    async def observe_calls(self, answers: Any) -> None:
        """Nothing to remember."""

    def tracks(self) -> list[Any]:
        return []
