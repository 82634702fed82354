"""Which tasks a climb trains on, and what its rollouts teach the sampler."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from optimizer.tasks import TaskRef, passes
from orchestrator.climbs.curricula import curriculum_key, evidence_tasks, training_tasks
from orchestrator.climbs.models import Climb, ClimbRun, Phase
from orchestrator.climbs.settings import ClimbSettings, SearchSettings, TrainSettings
from orchestrator.environments.curriculum.store import known_tasks
from orchestrator.environments.models import Curriculum, Task
from orchestrator.runs.engine import announce_to_run
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.climbs.ladder import make_ladder
from tests.web.build import make_rollout, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def climb(people: People) -> Climb:
    return make_ladder(people)


def ended(climb: Climb, task: Task, purpose: str = "train", **fields: Any) -> Rollout:
    """A rollout of the climb that has just ended, told to whoever listens."""
    run = make_run(
        climb.project,
        purpose=purpose,
        environment_version=climb.environment_version,
        rubric_version=climb.rubric_version,
        model=climb.model,
    )
    ClimbRun.objects.create(climb=climb, run=run, rung_index=2, phase=Phase.TRAIN)
    rollout = make_rollout(run, task, **fields)
    announce_to_run(rollout)
    return rollout


def test_the_default_sampler_makes_the_passes_that_it_always_made(climb: Climb) -> None:
    settings = TrainSettings(groups=3)
    told = {"train-1", "train-4"}
    tasks = Task.objects.filter(version=climb.environment_version, split="train")
    refs = [TaskRef(t.key, t.family) for t in tasks.exclude(key__in=told)]
    expected = [ref.key for ref in islice(passes(refs, climb.seed, "train"), 6)]
    drawn = [
        task.key
        for step in (1, 2)
        for task in training_tasks(climb=climb, settings=settings, step=step, exclude=told)
    ]
    assert drawn == expected


def test_a_step_at_the_turn_of_two_passes_has_different_tasks(climb: Climb) -> None:
    settings = TrainSettings(groups=4)
    for step in range(1, 12):
        tasks = training_tasks(climb=climb, settings=settings, step=step, exclude=())
        assert len({task.key for task in tasks}) == 4


@pytest.mark.parametrize("sampler", ["sequential", "uniform", "signal"])
def test_rollouts_teach_and_never_change_a_step_that_was_drawn(climb: Climb, sampler: str) -> None:
    settings = TrainSettings(groups=3, sampler=sampler)
    first = training_tasks(climb=climb, settings=settings, step=1, exclude=())
    rollout = ended(climb, first[0], score=1.0, tokens_in=90, tokens_out=10)
    announce_to_run(rollout)  # told twice, counted once
    ended(climb, first[0], state="errored", message="it broke", cause="server_lost")
    assert training_tasks(climb=climb, settings=settings, step=1, exclude=()) == first
    curriculum = Curriculum.objects.get(key=curriculum_key(climb.pk, "train"))
    known = {task.key: task for task in known_tasks(curriculum)}[first[0].key]
    assert (known.successes, known.failures, known.cost) == (1.0, 0.0, 100.0)


def test_sealed_and_selection_tasks_teach_nothing(climb: Climb) -> None:
    training_tasks(climb=climb, settings=TrainSettings(), step=1, exclude=())
    for split, purpose in (("test", "evaluate"), ("select", "certify"), ("test", "train")):
        task = Task.objects.filter(version=climb.environment_version, split=split).first()
        assert task is not None
        ended(climb, task, purpose)
    curriculum = Curriculum.objects.get(key=curriculum_key(climb.pk, "train"))
    assert all(task.successes + task.failures == 0 for task in known_tasks(curriculum))


def test_the_search_watches_tasks_that_earlier_training_found_telling(climb: Climb) -> None:
    training_tasks(climb=climb, settings=TrainSettings(), step=1, exclude=())
    tasks = list(Task.objects.filter(version=climb.environment_version, split="train"))
    for task in tasks[2:]:
        for _ in range(6):
            ended(climb, task, score=1.0)
    for number in range(12):
        for task in tasks[:2]:
            ended(climb, task, score=float(number % 2))
    settings = SearchSettings(evidence_tasks=2, evidence_sampler="signal")
    watched = evidence_tasks(climb=climb, settings=settings)
    assert evidence_tasks(climb=climb, settings=settings) == watched
    search = Curriculum.objects.get(key=curriculum_key(climb.pk, "search"))
    known = {task.key: task for task in known_tasks(search)}
    assert known[tasks[0].key].failures > 1 > known[tasks[5].key].failures


def test_an_unknown_sampler_is_refused_when_a_climb_is_made() -> None:
    with pytest.raises(ValueError, match="sequential, uniform, signal"):
        ClimbSettings.from_json({"train": {"sampler": "best"}})
    with pytest.raises(ValueError, match="evidence_sampler"):
        ClimbSettings.from_json({"search": {"evidence_sampler": "best"}})
