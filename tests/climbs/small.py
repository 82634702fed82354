"""A climb small enough for tests: few tasks, few demonstrations, a random model of two layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings

from optimizer.harness import Harness, Limits, Sampling
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.climbs.demo import RUBRIC, new_tasks
from orchestrator.climbs.models import Climb
from orchestrator.climbs.services import start_climb
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import create_version
from orchestrator.environments.terminal.tasks import generate
from orchestrator.projects.models import Project, User
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version

SMALL = {
    "search": {
        "demonstrations": 2,
        "own_demonstrations": 1,
        "evidence_tasks": 4,
        "max_demonstrations": 2,
        "blocks": 2,
        "wave_blocks": 2,
        "tasks_per_block": 6,
        "race_candidates": 2,
        "race_tasks": 6,
        "certify_batch_pairs": 6,
        "certify_max_pairs": 6,
    },
    "train": {"steps": 3, "groups": 2, "samples": 3, "lora_rank": 4, "threads": 1},
    "concurrency": 4,
}


def make_environment(project: Project, *, test: int = 24) -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=project, slug="small", name="Small", kind=EnvironmentKind.TERMINAL
    )
    specs = generate(3, {"train": 16, "select": 8, "test": test})
    return create_version(environment=environment, source={}, tasks=new_tasks(specs))


def make_endpoint(project: Project, **overrides: Any) -> ModelEndpoint:
    fields: dict[str, Any] = {
        "project": project,
        "name": "tiny",
        "kind": EndpointKind.LOCAL,
        "model": settings.MODEL_NAME,
        **overrides,
    }
    return ModelEndpoint.objects.create(**fields)


def make_climb(
    *,
    project: Project,
    actor: User,
    settings: dict[str, Any] | None = None,
    model: ModelEndpoint | None = None,
    max_tokens: int = 12,
) -> Climb:
    rubric = Rubric.objects.create(project=project, name="small")
    harness = Harness(
        instructions="Reply with one line.\n",
        sampling=Sampling(temperature=1.0, max_tokens=max_tokens, stop=("\n",)),
        limits=Limits(max_steps=4),
    )
    return start_climb(
        actor=actor,
        project=project,
        name="Small climb",
        environment_version=make_environment(project),
        rubric_version=create_rubric_version(rubric=rubric, spec=RUBRIC),
        model=model or make_endpoint(project),
        seed_harness=store_harness(project_id=project.pk, harness=harness),
        settings=ClimbSettings.from_json({**SMALL, **(settings or {})}),
    )


def tiny_model(folder: Path) -> Path:
    from training.prepare import make_tiny  # torch stays out of the test process elsewhere

    return make_tiny(folder, seed=1)
