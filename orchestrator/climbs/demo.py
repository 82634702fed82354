"""The demo: a project with the terminal environment, its rubric, the seed harness and the bundled
model.

Everything is found again by its name or content, so that preparing twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from optimizer.harness import load_folder
from optimizer.models import HarnessVersion
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.climbs.models import ENDED_CLIMB_STATES, Climb
from orchestrator.climbs.services import start_climb
from orchestrator.climbs.settings import ClimbSettings, SearchSettings, TrainSettings
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import NewTask, create_version
from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.environments.terminal.tasks import DEMO_COUNTS, FULL_COUNTS, generate
from orchestrator.projects.models import Project, User
from orchestrator.projects.services import create_project
from rubrics.models import Rubric, RubricVersion
from rubrics.versions import create_rubric_version

_ELSEWHERE = frozenset({"key", "split", "family", "prompt", "reference"})
"""Fields of a task that have a column of their own."""
PROJECT = "Demo"
TASK_SEED = 7
EXAMPLE = Path("examples") / "terminal-files"

RUBRIC: dict[str, Any] = {
    "criteria": [
        {
            "id": "correct",
            "name": "The answer is right",
            "kind": "environment_reward",
            "weight": 9,
            "required": True,
        },
        {
            "id": "few-steps",
            "name": "At most three steps",
            "kind": "steps",
            "weight": 1,
            "params": {"within": 3, "max": 4},
            "scope": "trajectory",
        },
        {
            "id": "no-deletion",
            "name": "Deletes nothing",
            "kind": "forbidden_command",
            "weight": 2,
            "negative": True,
            "params": {"patterns": [r"\brm\b", r"\bshred\b", r">\s*/dev/"]},
            "scope": "trajectory",
        },
    ]
}

DEMO_SETTINGS = ClimbSettings(
    # Two evaluations, of the weights before and after: others would take a minute each.
    train=TrainSettings(evaluate_every=12),
)
FULL_SETTINGS = ClimbSettings(
    search=SearchSettings(blocks=24, tasks_per_block=10, race_tasks=40, certify_max_pairs=150),
    train=TrainSettings(steps=40, groups=8),
    test_replicates=1,
    max_rollouts=20_000,
)


def ensure_climb(*, actor: User, full: bool = False) -> Climb:
    """The demo climb that is under way, or a new one."""
    project = Project.objects.filter(name=PROJECT).first()
    if project is None:
        project = create_project(actor=actor, name=PROJECT)
    climb = Climb.objects.filter(project=project).exclude(state__in=ENDED_CLIMB_STATES).first()
    if climb is not None:
        return climb
    return start_climb(
        actor=actor,
        project=project,
        name="Terminal files",
        environment_version=_environment(project, full=full),
        rubric_version=_rubric(project),
        model=_model(project),
        seed_harness=_seed_harness(project),
        settings=FULL_SETTINGS if full else DEMO_SETTINGS,
    )


def _environment(project: Project, *, full: bool) -> EnvironmentVersion:
    counts = FULL_COUNTS if full else DEMO_COUNTS
    specs = generate(TASK_SEED, counts)
    environment, _ = Environment.objects.get_or_create(
        project=project,
        slug="terminal-files",
        defaults={
            "name": "Terminal files",
            "kind": EnvironmentKind.TERMINAL,
            "description": (
                "Small folders of files and questions on them, answered with a shell. "
                "Each rollout works on its own copy in a sandbox without network."
            ),
        },
    )
    return create_version(
        environment=environment,
        source={"generator": "terminal-files", "seed": TASK_SEED, "full": full},
        tasks=new_tasks(specs),
    )


def new_tasks(specs: Sequence[TaskSpec]) -> list[NewTask]:
    """The generator's exercises as an environment's tasks; transcripts stay on train tasks."""
    return [_task(spec) for spec in specs]


def _task(spec: TaskSpec) -> NewTask:
    return NewTask(
        key=spec.key,
        split=spec.split,
        family=spec.family,
        prompt=spec.prompt,
        reset={"task": spec.key},
        spec={name: v for name, v in spec.as_json().items() if name not in _ELSEWHERE},
        reference=[dict(message) for message in spec.reference] or None,
    )


def _rubric(project: Project) -> RubricVersion:
    rubric, _ = Rubric.objects.get_or_create(project=project, name="answer-and-steps")
    return create_rubric_version(rubric=rubric, spec=RUBRIC)


def _model(project: Project) -> ModelEndpoint:
    endpoint, _ = ModelEndpoint.objects.get_or_create(
        project=project,
        name="SmolLM2-135M-Instruct",
        defaults={"kind": EndpointKind.LOCAL, "model": settings.MODEL_NAME},
    )
    return endpoint


def _seed_harness(project: Project) -> HarnessVersion:
    harness = load_folder(Path(settings.BASE_DIR) / EXAMPLE / "harness")
    with transaction.atomic():
        return store_harness(project_id=project.pk, harness=harness, label="seed")
