"""Queues on rows of rollouts, for tests of review."""

from __future__ import annotations

import itertools
from typing import Any

from orchestrator.projects.models import Project, User
from orchestrator.review.marks import Mark
from orchestrator.review.models import ReviewItem, ReviewQueue
from orchestrator.review.services import QueueSpec, add_items, create_queue
from orchestrator.runs.models import Rollout
from rubrics.models import Rubric, RubricVersion
from tests.web.build import make_environment, make_rollout, make_run, tasks_of

_numbers = itertools.count(1)

SPEC: dict[str, Any] = {
    "criteria": [
        {"id": "correct", "name": "The answer is right", "kind": "environment_reward"},
        {
            "id": "tone",
            "name": "States the result plainly",
            "kind": "judge",
            "params": {
                "question": "Does it state the result plainly?",
                "scale": "scale",
                "min": 1,
                "max": 5,
                "anchors": {"1": "buried in talk", "5": "the result and nothing else"},
            },
        },
    ]
}

GOOD = {"correct": Mark("1"), "tone": Mark("5", "short")}
BAD = {"correct": Mark("0"), "tone": Mark("na")}


def make_version(project: Project, spec: dict[str, Any] | None = None) -> RubricVersion:
    rubric = Rubric.objects.create(project=project, name=f"answers-{next(_numbers)}")
    return RubricVersion.objects.create(
        rubric=rubric, number=1, spec=spec or SPEC, sha256=f"{next(_numbers):064x}"
    )


def make_rollouts(
    project: Project, n: int, *, per_task: int = 1, **overrides: Any
) -> list[Rollout]:
    """`n` tasks with `per_task` rollouts each, in one run."""
    version = make_environment(project, tasks=n)
    run = make_run(project, environment_version=version, **overrides)
    return [
        make_rollout(run, task, replicate=replicate)
        for task in tasks_of(run)[:n]
        for replicate in range(per_task)
    ]


def make_queue(
    project: Project, actor: User, rollouts: list[Rollout] | None = None, **overrides: Any
) -> ReviewQueue:
    fields: dict[str, Any] = {"name": f"queue {next(_numbers)}", **overrides}
    if "rubric_version" not in fields:
        fields["rubric_version"] = make_version(project)
    queue = create_queue(actor=actor, project=project, spec=QueueSpec(**fields))
    if rollouts:
        add_items(queue, rollouts, actor=actor)
    return queue


def items_of(queue: ReviewQueue) -> list[ReviewItem]:
    return list(ReviewItem.objects.filter(queue=queue).select_related("queue"))
