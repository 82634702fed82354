"""A training from its first rollout to its chosen weights, with every part real but the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.models import Curriculum
from orchestrator.events.models import Event
from orchestrator.jobs.execution import run_attempt
from orchestrator.runs.models import Purpose, Rollout, Run
from orchestrator.trainings.services import cancel_training, pause_training, resume_training
from tests.base import People
from tests.doubles.model_server import Asked
from tests.doubles.trainer import write_interpreter
from tests.runs.conftest import MakeModel
from tests.runs.drive import FINISH, act, assert_gapless
from tests.trainings.build import parts, start
from training.models import TrainingAlarm, TrainingJob, TrainingRun, TrainingState

pytestmark = pytest.mark.django_db(transaction=True)

FAIL = act(reward=0.0, done=True)


def better_at_step_2(asked: Asked) -> str:
    """Solves held-out tasks with the weights of step 2 alone."""
    return FINISH if asked.model.endswith("v0002") or "train" in asked.last else FAIL


def told(job: TrainingJob, kind: str) -> list[dict[str, Any]]:
    events = Event.objects.filter(stream_id=job.stream_id, kind=kind).order_by("seq")
    return [event.payload for event in events]


def attempt(job: TrainingJob) -> TrainingJob:
    """What the worker of its device does."""
    assert job.job_id is not None
    run_attempt(job.job_id)
    job.refresh_from_db()
    return job


def test_a_training_ends_with_what_is_best_on_held_out_tasks(
    people: People, data: Path, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(better_at_step_2)
    made = parts(people.project, base_url=fault_url, model_url=model.url)
    job = attempt(start(people, made, interpreter=write_interpreter(data)))
    assert (job.state, job.error) == (TrainingState.COMPLETED, "")
    assert (job.step, job.chosen_step) == (3, 2)
    assert job.adapter_path.endswith("v0002")
    assert "Step 2: 1.000 on 3 held-out rollouts, 0.000 before training." in job.chosen_reason
    assert (job.device, job.device_since) == ("", None)
    assert job.device_s > 0

    # Each step samples with the weights of the one before, each evaluation with those it measures.
    runs = TrainingRun.objects.filter(training_job=job).select_related("run")
    asked = {(each.kind, each.step): each.run for each in runs}
    assert {key: run.adapter_name for key, run in asked.items()} == {
        ("evaluation", 0): "",
        ("step", 1): "",
        ("step", 2): f"t{job.pk}-v0001",
        ("evaluation", 2): f"t{job.pk}-v0002",
        ("step", 3): f"t{job.pk}-v0002",
        ("evaluation", 3): f"t{job.pk}-v0003",
    }
    assert [e["mean"] for e in told(job, "train.evaluated")] == [0.0, 1.0, 0.0]
    assert [e["pool_rows"] for e in told(job, "train.evaluated")] == [3, 3, 3]
    # Held-out tasks are of `select` and the same each time; `test` is never read.
    splits = set(Rollout.objects.values_list("run__purpose", "task__split"))
    assert splits == {(Purpose.TRAIN, "train"), (Purpose.EVALUATE, "select")}
    held_out = [
        sorted(run.rollouts.values_list("task__key", "seed"))
        for (kind, _), run in asked.items()
        if kind == "evaluation"
    ]
    assert held_out[0] == held_out[1] == held_out[2]

    steps = told(job, "train.step")
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert [step["versions"] for step in steps] == [["v0000"], ["v0001"], ["v0002"]]
    # What it learned of its tasks is kept for the sampler.
    curriculum = Curriculum.objects.get(key=f"training-{job.pk}")
    assert curriculum.estimates.exists()
    assert_gapless()


def test_a_trainer_that_dies_goes_on_and_samples_nothing_twice(
    people: People, data: Path, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(lambda _: FINISH)
    made = parts(people.project, base_url=fault_url, model_url=model.url)
    job = attempt(start(people, made, interpreter=write_interpreter(data, "once")))
    assert job.state == TrainingState.COMPLETED
    (failed,) = told(job, "train.attempt")
    assert (failed["step"], failed["kind"], failed["stops"]) == (2, "killed by SIGKILL", "")
    assert job.failures == []  # a finished step clears them
    assert Run.objects.filter(purpose=Purpose.TRAIN).count() == 3
    assert [step["step"] for step in told(job, "train.step")] == [1, 2, 3]


def test_the_same_failure_twice_ends_the_training(people: People, data: Path) -> None:
    job = attempt(start(people, interpreter=write_interpreter(data, "alike")))
    assert job.state == TrainingState.FAILED
    assert "The same failure twice in step 0: disk full, 1 MB left" in job.error
    assert [each["attempt"] for each in told(job, "train.attempt")] == [1, 2]
    assert (Path(job.folder) / "failures").read_text() == "xx"


def test_a_collapse_pauses_the_training_until_a_person_has_seen_it(
    people: People, data: Path, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(lambda _: FINISH)
    made = parts(people.project, base_url=fault_url, model_url=model.url)
    interpreter = write_interpreter(data, "collapses")
    settings: dict[str, Any] = {"steps": 7, "groups": 1, "evaluate_every": 0}
    job = attempt(start(people, made, interpreter=interpreter, **settings))
    # It has its alarm at step 6, gives its device back, and waits.
    assert (job.state, job.step, job.device) == (TrainingState.QUEUED, 6, "")
    assert job.job is None
    alarm = TrainingAlarm.objects.get(training_job=job)
    assert (alarm.signal, alarm.level, alarm.step) == ("roles", "pause", 6)
    assert job.pause_reason == f"The training may collapse. {alarm.sentence}"
    assert told(job, "train.alarm")[0]["text"] == alarm.sentence

    resume_training(actor=people.editor, job=job)
    job.refresh_from_db()
    alarm.refresh_from_db()
    assert alarm.acknowledged_by == people.editor
    assert job.device == "cpu"
    job = attempt(job)
    assert (job.state, job.step, job.chosen_step) == (TrainingState.COMPLETED, 7, 7)
    assert TrainingAlarm.objects.count() == 1  # seen, and told again only after some steps


def test_a_paused_training_lets_another_have_its_device(
    people: People, data: Path, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(lambda _: FINISH)
    made = parts(people.project, base_url=fault_url, model_url=model.url)
    interpreter = write_interpreter(data)
    first = start(people, made, interpreter=interpreter)
    second = start(people, made, interpreter=interpreter)
    assert (first.device, second.device) == ("cpu", "")
    pause_training(actor=people.editor, job=first)
    first = attempt(first)
    second.refresh_from_db()
    assert (first.state, first.device, second.device) == (TrainingState.QUEUED, "", "cpu")
    resume_training(actor=people.editor, job=first)
    assert attempt(second).state == TrainingState.COMPLETED
    first.refresh_from_db()
    assert first.device == "cpu"
    cancel_training(actor=people.editor, job=first)
    assert attempt(first).state == TrainingState.CANCELLED


def test_an_environment_without_answers_ends_it_with_the_reason(
    people: People, data: Path, make_model: MakeModel
) -> None:
    job = attempt(start(people, interpreter=write_interpreter(data), evaluate_every=0))
    assert job.state == TrainingState.FAILED
    assert "ECHO step 1 of 3" in job.error
    manifest = json.loads((Path(job.folder) / "manifest.json").read_text())
    assert manifest == job.manifest
