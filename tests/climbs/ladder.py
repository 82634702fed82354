"""Climbs over real servers whose model does what a script says.

The environment is the fault environment: an action says itself what it is worth. The model acts
well on tasks that it can solve as soon as it sees a demonstration, and for nothing without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.climbs.models import Climb, Rung
from orchestrator.climbs.services import start_climb
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.models import Event
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.projects.models import Project
from tests.base import People
from tests.climbs.small import SMALL
from tests.doubles.model_server import Asked
from tests.runs.drive import FINISH, SHORT_LIMITS, act, make_endpoint, make_harness, make_rubric

N_TEST = 12
FAIL = act(reward=0.0, done=True)
FAMILIES = ("red", "green")
SEARCH = {**SMALL["search"], "certify_batch_pairs": 6, "certify_max_pairs": 12}  # type: ignore[dict-item]


def follows_demonstrations(asked: Asked) -> str:
    """Solves five of six tasks as soon as an example stands before the task."""
    is_told = any(role == "assistant" for role, _ in asked.messages)
    return FINISH if is_told and "hard" not in asked.last else FAIL


def never_learns(asked: Asked) -> str:
    return FAIL


def overfits(asked: Asked) -> str:
    """What examples teach holds for train tasks only."""
    return follows_demonstrations(asked) if asked.last.startswith("train") else FAIL


def spoiled_by_edits(asked: Asked) -> str:
    """Solves everything under the seed harness and nothing under any other."""
    told = asked.messages[0][1]  # the instructions, then how to write an action
    is_seed = told.startswith("Act in JSON.\n\nEach reply is") and len(asked.messages) == 2
    return FINISH if is_seed else FAIL


def make_tasks(project: Project, base_url: str) -> EnvironmentVersion:
    environment = Environment.objects.create(
        project=project, slug="ladder", name="Ladder", kind=EnvironmentKind.URL
    )
    counts = {"train": 10, "select": 8, "test": N_TEST}
    return create_version(
        environment=environment,
        source={"base_url": base_url},
        settings=SHORT_LIMITS,
        tasks=[
            NewTask(
                key=f"{split}-{i}",
                split=split,
                family=FAMILIES[i % 2],
                prompt=f"{split} task {i}{' (hard)' if i % 6 == 5 else ''}",
                reference=[{"role": "assistant", "content": FINISH}] if split == "train" else None,
            )
            for split, n in counts.items()
            for i in range(n)
        ],
    )


def make_ladder(
    people: People, *, base_url: str = "http://127.0.0.1:9", model_url: str = "", **settings: Any
) -> Climb:
    return start_climb(
        actor=people.editor,
        project=people.project,
        name="Up the hill",
        environment_version=make_tasks(people.project, base_url),
        rubric_version=make_rubric(people.project),
        model=make_endpoint(people.project, model_url or "http://127.0.0.1:9"),
        seed_harness=make_harness(people.project),
        settings=ClimbSettings.from_json({**SMALL, "search": SEARCH, **settings}),
    )


def work(until: Callable[[], bool] = lambda: False, *, limit: int = 100) -> int:
    """Works on queued jobs, oldest first, until none is left; never on training. Their number."""
    for done in range(limit):
        job = Job.objects.filter(state=JobState.QUEUED).exclude(queue="gpu").order_by("id").first()
        if job is None or until():
            return done
        run_attempt(job.pk)
    raise AssertionError(f"more than {limit} jobs")


def rungs(climb: Climb) -> list[Rung]:
    return list(climb.rungs.select_related("test_run", "harness", "comparison"))


def told(climb: Climb, kind: str) -> list[dict[str, Any]]:
    """Payloads of one kind on the climb's stream, in order."""
    events = Event.objects.filter(stream_id=climb.stream_id, kind=kind).order_by("seq")
    return [event.payload for event in events]
