"""Trainings of their own, over a real environment server and a trainer without weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import NewTask, create_version
from orchestrator.projects.models import Project
from orchestrator.trainings.services import start_training
from orchestrator.trainings.settings import TrainSettings
from tests.base import People
from tests.runs.drive import SHORT_LIMITS, make_endpoint, make_harness, make_rubric
from training.models import TrainingJob

SMALL = TrainSettings(steps=3, groups=2, samples=2, evaluate_every=2, evaluate_rollouts=3)
NOWHERE = "http://127.0.0.1:9"


def make_version(project: Project, base_url: str = NOWHERE) -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=project,
        slug=f"trained-{Environment.objects.count()}",
        name="Trained",
        kind=EnvironmentKind.URL,
    )
    return create_version(
        environment=environment,
        source={"base_url": base_url},
        settings=dict.fromkeys(SHORT_LIMITS, 120.0),
        tasks=[
            NewTask(key=f"{split}-{i}", split=split, family="f", prompt=f"{split} task {i}")
            for split in ("train", "select", "test")
            for i in range(5)
        ],
    )


def parts(project: Project, *, base_url: str = NOWHERE, model_url: str = NOWHERE) -> dict[str, Any]:
    """What a training is made of, apart from its settings."""
    model: ModelEndpoint = make_endpoint(project, model_url)
    return {
        "environment_version": make_version(project, base_url),
        "rubric_version": make_rubric(project),
        "model": model,
        "harness": make_harness(project),
    }


def start(
    people: People, made: dict[str, Any] | None = None, *, name: str = "A training", **changes: Any
) -> TrainingJob:
    return start_training(
        actor=people.editor,
        project=people.project,
        name=name,
        settings=replace(SMALL, **changes),
        **(made or parts(people.project)),
    )
