"""The first look at eight large runs side by side, in this process, through the page's own view."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure
from benchmarks.stack import use_temporary_data

RUNS, TASKS, ATTEMPTS, CRITERIA = 8, 500, 2, 5
BAR_S = 2.0
SEED = 7


def run() -> Iterator[Figure]:
    with use_temporary_data():
        from django.conf import settings
        from django.test import Client

        from orchestrator.projects.models import User
        from orchestrator.projects.services import create_project

        settings.ALLOWED_HOSTS = ["*"]
        user = User.objects.create_user("bench")
        project = create_project(actor=user, name="Bench")
        runs = _runs(project)
        client = Client()
        client.force_login(user)
        page = f"/p/{project.pk}/compare/"
        client.get(page)  # Templates of the frame are compiled, and two runs' of the page.
        client.get(page, {"runs": f"{runs[0]},{runs[1]}"})
        yield Figure("comparison.load_of_the_machine", os.getloadavg()[0], None)
        for name, bar in (("first_view", BAR_S), ("second_view", None)):
            started_s, cpu_s = time.monotonic(), time.process_time()
            answer = client.get(page, {"runs": ",".join(map(str, runs))})
            assert answer.status_code == 200
            yield Figure(f"comparison.{name}_s", time.monotonic() - started_s, bar)
            yield Figure(f"comparison.{name}_cpu_s", time.process_time() - cpu_s, None)


def _runs(project: Any) -> list[int]:
    from optimizer.harness import Harness
    from optimizer.store import store_harness
    from orchestrator.agents.models import EndpointKind, ModelEndpoint
    from orchestrator.environments.models import Environment, EnvironmentVersion, Task
    from orchestrator.events.models import Stream
    from orchestrator.events.services import create_stream
    from orchestrator.runs.models import Rollout, Run, VerdictRecord
    from rubrics.models import Rubric
    from rubrics.versions import create_rubric_version

    draw = random.Random(SEED)
    environment = Environment.objects.create(
        project=project, slug="bench", name="Bench", kind="terminal"
    )
    version = EnvironmentVersion.objects.create(environment=environment, number=1, sha256="ab" * 32)
    tasks = Task.objects.bulk_create(
        Task(version=version, key=f"t{i:04d}", split="test", family=f"f{i % 5}", prompt=f"Task {i}")
        for i in range(TASKS)
    )
    criteria = [{"id": f"c{i}", "kind": "environment_reward", "weight": 1} for i in range(CRITERIA)]
    rubric = create_rubric_version(
        rubric=Rubric.objects.create(project=project, name="Bench"), spec={"criteria": criteria}
    )
    model = ModelEndpoint.objects.create(
        project=project, name="m", kind=EndpointKind.LOCAL, model="m"
    )
    made = []
    for number in range(RUNS):
        harness = store_harness(
            project_id=project.pk, harness=Harness(instructions=f"Version {number}.\n")
        )
        run = Run.objects.create(
            project=project,
            stream=create_stream(project=project, kind="run"),
            purpose="evaluate",
            state="completed",
            environment_version=version,
            rubric_version=rubric,
            model=model,
        )
        streams = Stream.objects.bulk_create(
            Stream(project=project, kind="rollout") for _ in range(TASKS * ATTEMPTS)
        )
        values = [
            [float(draw.random() < 0.4 + 0.02 * number) for _ in range(CRITERIA - 1)]
            + [round(draw.random(), 3)]
            for _ in streams
        ]
        rollouts = Rollout.everything.bulk_create(
            Rollout(
                run=run,
                stream=stream,
                harness=harness,
                task=tasks[i // ATTEMPTS],
                replicate=i % ATTEMPTS,
                seed=i,
                state="scored",
                score=sum(values[i]) / CRITERIA,
                attempt=1,
            )
            for i, stream in enumerate(streams)
        )
        VerdictRecord.objects.bulk_create(
            VerdictRecord(
                rollout=rollout, criterion=f"c{c}", name=f"c{c}", state="scored", value=value
            )
            for rollout, own in zip(rollouts, values, strict=True)
            for c, value in enumerate(own)
        )
        made.append(run.pk)
    return made
