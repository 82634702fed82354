"""What the work is done on, made by the product's own services; then everything goes by REST.

The process that drives reads the database beside the product: on PostgreSQL past the proxy, on
SQLite without the fault library, so that what it sees is what is there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doubles.openenv_servers import FaultServer
from tests.kills.client import Client
from tests.kills.doubles import Receiver
from tests.kills.journal import Journal
from tests.kills.scripts import JudgeScript, Script

JUDGED = {
    "criteria": [
        {"id": "reward", "name": "Reward", "kind": "environment_reward", "weight": 1},
        {
            "id": "judged",
            "name": "Judged",
            "kind": "judge",
            "weight": 1,
            "params": {"question": "Was it done well?", "max_tokens": 100},
        },
    ]
}


@dataclass
class World:
    client: Client
    admin: Client
    journal: Journal
    judge: JudgeScript
    receiver: Receiver
    environment: FaultServer
    ids: dict[str, int]
    refs: dict[str, str]
    closers: list[Callable[[], None]]

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self.ingest = Ingest(self)

    def start(self) -> None:
        """The stream of traces from outside."""
        self.ingest.thread.start()

    # --- starting work --------------------------------------------------------------------------

    def work_on(self, environment: str, model: str, rubric: str = "reward") -> dict[str, Any]:
        return {
            "environment": environment,
            "rubric": self.ids[f"rubric {rubric}"],
            "model": self.ids[f"model {model}"],
            "harness": self.ids[f"harness {model}"],
        }

    def start_run(self, *, is_judged: bool = False, n_tasks: int = 8, replicates: int = 2) -> int:
        rubric = "judged" if is_judged else "reward"
        body = self.work_on("ladder", "scripted", rubric)
        body |= {"split": "select", "n_tasks": n_tasks, "replicates": replicates}
        return self._accepted("run", "runs", {**body, "concurrency": 4})

    def start_terminal_run(self) -> int:
        body = self.work_on("small", "tiny")
        return self._accepted("run", "runs", {**body, "split": "select", "concurrency": 2})

    def start_regrade(self, run: int) -> int:
        body = {"rubric": self.ids["rubric judged"], "run": run}
        return self._accepted("re-grade", "re-grades", body)

    def start_search(self) -> int:
        from tests.searches.build import SMALL

        settings = {**SMALL, "concurrency": 4}
        body = {**self.work_on("ladder", "scripted"), "name": f"Search {next(self._numbers)}"}
        return self._accepted("search", "searches", {**body, "settings": settings})

    def start_climb(self) -> int:
        from tests.climbs.small import SMALL

        body = {**self.work_on("small", "tiny"), "name": f"Climb {next(self._numbers)}"}
        return self._accepted("climb", "climbs", {**body, "settings": SMALL})

    def start_training(self) -> int:
        from tests.climbs.small import SMALL

        train: Any = SMALL["train"]
        settings = {**train, "evaluate_every": 2, "evaluate_rollouts": 2}
        settings |= {"steps": 4, "pauses_on_alarm": False}
        body = {**self.work_on("small", "tiny"), "name": f"Training {next(self._numbers)}"}
        return self._accepted("training", "trainings", {**body, "settings": settings})

    def start_gate(self) -> int:
        body = self.work_on("ladder", "scripted")
        body["rubric"] = "reward"
        body["model"] = "scripted"
        body["baseline"] = {"ref": self.refs["harness scripted"]}
        body["harness"] = {"ref": self.refs["harness other"]}
        body |= {"name": f"Gate {next(self._numbers)}", "policy": {"rollouts": 160}}
        return self._accepted("gate", "gates", body)

    def _accepted(self, kind: str, path: str, body: dict[str, Any]) -> int:
        pk = int(self.client.post(path, body)["id"])
        self.journal.accepted(kind, pk)
        return pk

    def close(self) -> None:
        for close in self.closers:
            close()


class Ingest:
    """Sends batches of events for ever; what is answered goes to the journal."""

    def __init__(self, world: World) -> None:
        self.stop, self.failure = threading.Event(), ""
        self.batches = 0
        self._world = world
        self.thread = threading.Thread(target=self._run, name="ingest", daemon=True)

    def finish(self) -> None:
        self.stop.set()
        self.thread.join(timeout=200)

    def _run(self) -> None:
        for number in itertools.count():
            if self.stop.wait(0.25):
                return
            rollout = f"outside-{number // 40}"
            names = [f"{rollout}-{number}-{index}" for index in range(10)]
            lines = [
                json.dumps(
                    {
                        **{"rollout": rollout, "id": name, "seq": number * 10 + index},
                        **{"kind": "observation", "content": f"word{number} of {name}"},
                    }
                )
                for index, name in enumerate(names)
            ]
            try:
                answer = self._world.client.send(
                    "POST",
                    "ingest",
                    content="\n".join(lines),
                    headers={"Content-Type": "application/x-ndjson"},
                )
            except AssertionError as failure:
                self.failure = str(failure)
                continue
            if answer["accepted"] + answer["duplicate"] == len(names):
                self._world.journal.ingested(rollout, names)
                self.batches += 1
            else:
                self.failure = f"refused: {answer}"


def make_world(
    urls: list[str], folder: Path, *, seed: int, journal: Journal, receiver: Receiver
) -> World:
    """Needs a migrated database and Django."""
    from optimizer.harness import Harness, Limits, Sampling
    from optimizer.store import store_harness
    from orchestrator.agents.models import ModelEndpoint
    from orchestrator.projects.models import Role, User
    from orchestrator.projects.services import create_project, issue_token
    from rubrics.models import Rubric
    from rubrics.versions import create_rubric_version
    from tests.climbs import ladder, small
    from tests.doubles.model_server import ScriptedModel
    from tests.runs.drive import make_endpoint, make_harness, make_rubric

    owner = User.objects.create_user("owner", password="correct-horse-battery")
    project = create_project(actor=owner, name="Kills")
    judge_script = JudgeScript()
    model, judge = ScriptedModel(Script(seed)), ScriptedModel(judge_script, name="judge")
    model.start()
    judge.start()
    environment = FaultServer(folder, env={"MAX_CONCURRENT_ENVS": "32"})
    asyncio.run(environment.start())
    version = ladder.make_tasks(project, environment.base_url)
    version.settings = {}
    version.save(update_fields=["settings"])
    small.make_environment(project, test=8)
    rubric = Rubric.objects.create(project=project, name="judged")
    create_rubric_version(rubric=rubric, spec=JUDGED)
    scripted = make_endpoint(project, model.url, name="scripted")
    ModelEndpoint.objects.create(
        project=project,
        name="judge",
        kind="openai",
        base_url=judge.url,
        model="judge",
        is_judge=True,
        price_in_usd_per_mtok=1.0,
        price_out_usd_per_mtok=1.0,
    )
    tiny = small.make_endpoint(project)
    tiny_harness = store_harness(
        project_id=project.pk,
        harness=Harness(
            instructions="Reply with one line.\n",
            sampling=Sampling(temperature=1.0, max_tokens=12, stop=("\n",)),
            limits=Limits(max_steps=4),
        ),
    )
    plain = make_harness(project)
    other = make_harness(project, instructions="Act in JSON. Think.\n")
    ids = {
        "rubric reward": make_rubric(project).rubric_id,
        "rubric judged": rubric.pk,
        "model scripted": scripted.pk,
        "model tiny": tiny.pk,
        "harness scripted": plain.pk,
        "harness other": other.pk,
        "harness tiny": tiny_harness.pk,
    }
    tokens = [
        issue_token(actor=owner, project_id=project.pk, name=role.value, role=role).secret
        for role in (Role.EDITOR, Role.ADMIN)
    ]
    client, admin = (Client(urls, token, project.pk) for token in tokens)
    return World(
        client,
        admin,
        journal,
        judge_script,
        receiver,
        environment,
        ids,
        {"harness scripted": plain.short, "harness other": other.short},
        [model.stop, judge.stop, environment.stop, receiver.stop],
    )
