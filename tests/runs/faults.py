"""A fault case as a run: real servers, a real job, and an agent that acts by a script.

The agent is a conversation in the engine's process, since the cases are about environments. It
causes the case's events at their moments: before a step is sent, while it runs, after it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from django.db import connections

from orchestrator.agents.types import Completion, FunctionCall, Message, Segment, TokenTrack
from orchestrator.environments.limits import EpisodeSettings
from orchestrator.environments.models import Environment, EnvironmentVersion, Task
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.models import Event
from orchestrator.runs.models import Rollout, Run
from orchestrator.runs.services import cancel_run
from rubrics.models import Rubric, RubricVersion
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.doubles.openenv_servers import FaultServer, raw_server, silent_port
from tests.openenv_faults import VECTORS, expanded
from tests.runs.drive import execute, make_endpoint, make_harness, make_run
from tests.runs.serving import serving
from tests.waiting import wait_until

SETTINGS = {field.name for field in fields_of(EpisodeSettings)}
MakeServer = Callable[..., FaultServer]


@dataclass
class Target:
    base_url: str
    server: FaultServer | None = None


@contextmanager
def target_of(provoke: dict[str, Any], make: MakeServer, folder: Path) -> Iterator[Target]:
    """The case's server; what holds its slot from outside stays until the end of the block."""
    with ExitStack() as stack:
        if provoke["target"] == "raw_server":
            replies = expanded(provoke["replies"])
            yield Target(stack.enter_context(serving(raw_server(replies))))
            return
        if provoke["target"] == "none":
            yield Target(f"http://user:pass@127.0.0.1:{_port(provoke, stack)}?token=secret")
            return
        env = dict(provoke.get("server_env") or {})
        if "FAULT_WORKDIR" in env:
            env["FAULT_WORKDIR"] = str(folder)
        server = make(target=provoke["target"], env=env, args=provoke.get("server_args") or [])
        if provoke.get("hold_slot"):
            from tests.runs.test_bad_input import held

            stack.enter_context(serving(held(server.base_url)))
        yield Target(server.base_url, server)


def _port(provoke: dict[str, Any], stack: ExitStack) -> int:
    if "accepts and never answers" in provoke["port"]:
        return stack.enter_context(serving(silent_port()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def limits_of(provoke: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The file's defaults, then the case's."""
    given = {**VECTORS["settings"]["defaults"], **provoke.get("settings", {})}
    chosen = {name: value for name, value in given.items() if name in SETTINGS}
    if "verifier_files" in chosen:
        chosen["verifier_files"] = [str(folder / name) for name in chosen["verifier_files"]]
        for path in chosen["verifier_files"]:
            Path(path).write_text('{"expected": "hello"}', encoding="utf-8")
    return chosen


def version_for(
    people: People, base_url: str, limits: dict[str, Any], resets: Sequence[dict[str, Any]]
) -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=people.project, slug=f"f{Environment.objects.count()}", name="Fault", kind="url"
    )
    return create_version(
        environment=environment,
        source={"base_url": base_url},
        settings=limits,
        tasks=[
            NewTask(key=f"t{i}", split="test", prompt=f"Task {i}.", reset=reset)
            for i, reset in enumerate(resets)
        ],
    )


def wide_rubric(people: People) -> RubricVersion:
    """The environment's reward, whatever number it is."""
    rubric = Rubric.objects.create(project=people.project, name=f"r{Rubric.objects.count()}")
    criterion = {
        "id": "reward",
        "name": "Reward",
        "kind": "environment_reward",
        "weight": 1,
        "params": {"low": -100.0, "high": 100.0},
    }
    return create_rubric_version(rubric=rubric, spec={"criteria": [criterion]})


@dataclass
class Scripted:
    """The agent of one rollout: says the prepared actions and does what the case says."""

    provoke: dict[str, Any]
    actions: Sequence[Any]
    do: Callable[[dict[str, Any]], None]
    """Blocks until the event has happened; runs in a thread."""
    shown: list[str] = field(default_factory=list)
    """What the agent was told, in order."""
    turns: int = 0

    async def takes_functions(self) -> bool:
        return bool(self.provoke.get("one_turn"))

    async def start(self, messages: Sequence[Message], functions: Any = ()) -> None:
        self.shown.append(json.dumps(list(messages)))

    async def act(self, *, seed: int) -> Completion:
        if self.turns:
            await self._events("after", self.turns)
        self.turns += 1
        await self._events("before", self.turns)
        for event in self._of("during", f"step {self.turns}"):
            threading.Timer(event.get("after_s", 0.0), self.do, [event]).start()
        if self.provoke.get("one_turn"):
            calls = tuple(
                FunctionCall(f"c{n}", "act", json.dumps(action))
                for n, action in enumerate(self.actions)
            )
            return _said("", calls)
        return _said(json.dumps(self.actions[self.turns - 1]))

    async def observe(self, segments: Sequence[Segment]) -> None:
        self.shown += [segment.text for segment in segments]

    async def observe_calls(self, answers: Sequence[Sequence[Segment]]) -> None:
        self.shown += [segment.text for answer in answers for segment in answer]

    def tracks(self) -> list[TokenTrack]:
        """Asked for when there is a verdict and it is about to be written."""
        for event in self._of("after", f"step {len(self.actions)}"):
            worker = threading.Thread(target=self.do, args=[event])
            worker.start()
            worker.join()
        return []

    async def _events(self, moment: str, step: int) -> None:
        for event in self._of(moment, f"step {step}"):
            await asyncio.to_thread(self.do, event)

    def _of(self, moment: str, name: str) -> list[dict[str, Any]]:
        return [e for e in self.provoke.get("events", []) if e.get(moment) == name]


def _said(text: str, calls: tuple[FunctionCall, ...] = ()) -> Completion:
    return Completion(
        text=text, finish_reason="stop", tokens_in=1, tokens_out=1, latency_s=0.0, calls=calls
    )


def happens(people: People, target: Target, run: Run) -> Callable[[dict[str, Any]], None]:
    """What makes the case's events happen, from any thread."""

    def do(event: dict[str, Any]) -> None:
        if "blocks its thread" in event["do"]:
            threading.Event().wait(4)
        elif event["do"] == "cancel_rollout":
            cancel_run(actor=people.editor, run=Run.objects.get(pk=run.pk))
            connections.close_all()
        elif target.server is not None and event["do"] == "start_server":
            asyncio.run(target.server.start())
        elif target.server is not None:
            target.server.send(signal.Signals[event["signal"]])

    return do


@contextmanager
def while_waiting(
    provoke: dict[str, Any], run: Run, do: Callable[[dict[str, Any]], None]
) -> Iterator[None]:
    """The case's events during the wait for a slot."""
    events = [e for e in provoke.get("events", []) if e.get("during") == "waiting"]
    if not events:
        yield
        return

    def work() -> None:
        waiting = Event.objects.filter(stream__rollout__run=run, kind="waiting")
        wait_until(waiting.exists, limit_s=20, what="a rollout that waits")
        for event in events:
            threading.Event().wait(event.get("after_s", 0.0))
            do(event)
        connections.close_all()

    worker = threading.Thread(target=work)
    worker.start()
    yield
    worker.join(20)


@dataclass
class Outcome:
    run: Run
    rollouts: list[Rollout]
    agents: dict[int, Scripted]
    """By rollout."""


def run_case(
    people: People, provoke: dict[str, Any], target: Target, folder: Path, monkeypatch: Any
) -> Outcome:
    """The case as a run of one rollout for each of its scripts."""
    scripts = [r["actions"] for r in provoke.get("rollouts", [provoke])]
    limits = limits_of(provoke, folder)
    resets = [dict(provoke.get("reset") or {})] * len(scripts)
    version = version_for(people, target.base_url, limits, resets)
    in_turn = "as soon as A has finished" in json.dumps(provoke.get("rollouts", ""))
    run = make_run(
        people.project,
        version=version,
        harness=make_harness(people.project),
        model=make_endpoint(people.project, "http://127.0.0.1:9", kind="openai"),
        rubric_version=wide_rubric(people),
        concurrency=1 if in_turn else 8,
    )
    do = happens(people, target, run)
    agents = {
        rollout.pk: Scripted(provoke, expanded(scripts[_number(rollout.task)]), do)
        for rollout in run.rollouts.select_related("task")
    }
    monkeypatch.setattr(
        "orchestrator.runs.engine.conversation_for",
        lambda prepared, client, support, plan: agents[plan.rollout.pk],
    )
    with while_waiting(provoke, run, do):
        execute(run)
    run.refresh_from_db()
    ended = run.rollouts.select_related("task", "stream").order_by("id")
    return Outcome(run, list(ended), agents)


def _number(task: Task) -> int:
    return int(task.key.removeprefix("t"))
