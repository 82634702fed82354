"""Rollouts that events from outside belong to: found by the producer's name, or made.

They belong to the run *Imported traces* of their project, so that lists, the trace page, search,
grading and exports know them. Many are made at once: a request may bring a trace in every event.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from django.utils import timezone

from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion, Task
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.services import create_stream, create_streams
from orchestrator.projects.models import Project
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run, RunState
from orchestrator.traces.models import OutsideRollout
from orchestrator.traces.refusals import run_key
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version

NAME = "Imported traces"
NOT_GRADED = "It came from outside and has not been graded."


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def owners_of(project: Project, names: Sequence[str]) -> dict[str, OutsideRollout]:
    """By name, as JSON; inside a transaction. Those that are not there are made."""
    keys = {digest(name): name for name in names}
    found = _found(project, list(keys))
    if len(found) < len(keys):
        # Two callers that bring the same rollout wait for one another here.
        Project.objects.select_for_update().get(pk=project.pk)
        found = _found(project, list(keys))
        missing = [key for key in keys if key not in found]
        if missing:
            found |= _made(project, {key: keys[key] for key in missing})
    return {keys[key]: owner for key, owner in found.items()}


def _found(project: Project, keys: Sequence[str]) -> dict[str, OutsideRollout]:
    owners = OutsideRollout.objects.select_related("rollout")
    return {owner.key: owner for owner in owners.filter(project=project, key__in=keys)}


def _made(project: Project, names: dict[str, str]) -> dict[str, OutsideRollout]:
    run = _run(project)
    harness = store_harness(
        project_id=project.pk,
        harness=Harness(instructions="Unknown: the traces came from outside.\n"),
        label=NAME,
    )
    tasks = _tasks(run.environment_version, names)
    streams = create_streams(project=project, kinds=["rollout"] * len(names))
    now = timezone.now()
    rollouts = Rollout.objects.bulk_create(
        Rollout(
            run=run,
            stream_id=stream_id,
            harness=harness,
            task=task,
            seed=0,
            state=RolloutState.NOT_APPLICABLE,
            attempt=1,
            message=NOT_GRADED,
            started_at=now,
        )
        for task, stream_id in zip(tasks, streams, strict=True)
    )
    made = OutsideRollout.objects.bulk_create(
        OutsideRollout(project=project, key=key, name=name, rollout=rollout)
        for (key, name), rollout in zip(names.items(), rollouts, strict=True)
    )
    return {owner.key: owner for owner in made}


def _tasks(version: EnvironmentVersion, names: dict[str, str]) -> list[Task]:
    labels = {key: _label(name) for key, name in names.items()}
    wanted = [label for label in labels.values() if len(label) <= 64]
    taken = set(Task.objects.filter(version=version, key__in=wanted).values_list("key", flat=True))
    tasks = []
    for key, label in labels.items():
        is_free = len(label) <= 64 and label not in taken
        name = label if is_free else f"{label[:50]}-{key[:12]}"
        taken.add(name)
        tasks.append(Task(version=version, key=name, split="train", prompt=""))
    return Task.objects.bulk_create(tasks)


def _label(name: str) -> str:
    shown = json.loads(name)
    return shown if isinstance(shown, str) and shown.isprintable() else name


def _run(project: Project) -> Run:
    name = run_key(project.pk)
    if run := Run.objects.select_related("environment_version").filter(key=name).first():
        return run
    environment, _ = Environment.objects.get_or_create(
        project=project,
        slug="imported-traces",
        defaults={
            "name": NAME,
            "kind": EnvironmentKind.URL,
            "description": "Where traces came from that others produced; nothing can be run here.",
        },
    )
    version = environment.versions.first() or create_version(
        environment=environment,
        source={"base_url": "http://imported.invalid"},
        settings={},
        tasks=[NewTask(key="imported", split="train", prompt="")],
    )
    rubric, _ = Rubric.objects.get_or_create(project=project, name=NAME)
    spec = {"criteria": [{"id": "reward", "kind": "environment_reward", "weight": 1}]}
    model, _ = ModelEndpoint.objects.get_or_create(
        project=project, name=NAME, defaults={"kind": EndpointKind.OPENAI, "model": "unknown"}
    )
    now = timezone.now()
    return Run.objects.create(
        project=project,
        stream=create_stream(project=project, kind="run"),
        key=name,
        purpose=Purpose.EVALUATE,
        label=NAME,
        state=RunState.COMPLETED_UNSCORED,
        environment_version=version,
        rubric_version=create_rubric_version(rubric=rubric, spec=spec),
        model=model,
        started_at=now,
        ended_at=now,
    )
