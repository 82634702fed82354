"""The watch over a climb: what opens pauses it, what a person has seen does not again."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import transaction

from orchestrator.climbs.models import Climb, ClimbRun
from orchestrator.climbs.services import ClimbError, check_held_out, resume_climb
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.climbs.watch import queue_watch
from orchestrator.environments.models import Split, Task
from orchestrator.events.models import Event
from orchestrator.events.services import NewEvent, append
from orchestrator.grading.hacking import acknowledge, alarms_of, open_alarms
from orchestrator.grading.models import HackingAlarm, Regrade
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs.models import Run, VerdictRecord
from orchestrator.runs.signals import run_ended
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import People, make_people
from tests.web.build import (
    ACTION,
    make_climb,
    make_environment,
    make_harness,
    make_rollout,
    make_run,
    observation,
    started,
)

pytestmark = pytest.mark.django_db(transaction=True)
TASKS = 8
PER_TASK = 2
HONEST, GAMED = "honest", "gamed"


@pytest.fixture
def people(db: None) -> People:
    return make_people()


def climb_of(people: People, **watch: Any) -> Climb:
    """In training, with a held-out rubric that is not fooled."""
    rubric = Rubric.objects.create(project=people.project, name="held out")
    held_out = create_rubric_version(
        rubric=rubric,
        spec={"criteria": [{"id": "h", "kind": "contains", "params": {"texts": [HONEST]}}]},
    )
    climb = make_climb(people.project)
    settings = ClimbSettings.from_json({"watch": {"held_out_rubric": held_out.pk, **watch}})
    climb.config = settings.to_json()
    climb.environment_version = make_environment(people.project, tasks=TASKS)
    climb.save()
    return climb


def step(climb: Climb, answer: str, *, phase: str = "train", **rollouts: Any) -> Run:
    """A run of the climb that has ended and was told of; the training rubric pays all in full."""
    split = Split.TEST if phase == "echo_test" else Split.TRAIN
    run = make_run(
        climb.project,
        environment_version=climb.environment_version,
        rubric_version=climb.rubric_version,
        model=climb.model,
        purpose="train",
    )
    climb_run = ClimbRun.objects.create(climb=climb, run=run, rung_index=2, phase=phase)
    fields = {"answer": answer, "n_steps": 1, "harness": climb.seed_harness, **rollouts}
    for task in Task.objects.filter(version=climb.environment_version, split=split):
        for replicate in range(PER_TASK):
            rollout = make_rollout(run, task, replicate=replicate, **fields)
            said = {**ACTION, "form": "answer", "text": answer, "command": None, "answer": answer}
            append(
                stream_id=rollout.stream_id,
                items=[started(), NewEvent("action", said), observation(("env_output", "ok"))],
            )
    with transaction.atomic():
        queue_watch(climb_run=climb_run)
    return run


def work() -> int:
    """Works on the jobs of the watch and of held-out gradings until none is left."""
    done = 0
    while job := Job.objects.filter(
        state=JobState.QUEUED, kind__in=["climbs.watch", "grading.regrade"]
    ).first():
        run_attempt(job.pk)
        done += 1
    failed = Job.objects.filter(state=JobState.FAILED)
    assert not failed, [job.error for job in failed]
    return done


def told(climb: Climb, kind: str) -> list[dict[str, Any]]:
    events = Event.objects.filter(stream_id=climb.stream_id, kind=kind).order_by("seq")
    return [event.payload for event in events]


def test_a_gap_that_opens_in_training_pauses_the_climb_with_the_reason(people: People) -> None:
    climb = climb_of(people)
    step(climb, HONEST)
    assert work() == 3  # the run, its grading, the look
    assert not HackingAlarm.objects.exists()
    run = step(climb, GAMED)
    work()
    (alarm,) = open_alarms(people.project.pk)
    assert (alarm.signal, alarm.level, alarm.value) == ("gap", "pause", 1.0)
    assert (alarm.climb, alarm.run) == (climb, run)
    assert set(alarm.detail["rollouts"]) <= set(run.rollouts.values_list("pk", flat=True))
    climb.refresh_from_db()
    assert climb.state == "paused"
    assert told(climb, "alarm")[0]["level"] == "pause"
    assert told(climb, "climb.state")[-1]["state"] == "paused"
    assert told(climb, "decision")[-1]["text"].startswith("Paused by the watch: The training")
    assert set(Regrade.objects.values_list("purpose", "n_total", "state")) == {
        ("held_out", 16, "completed")
    }


def test_what_a_person_has_seen_pauses_again_only_when_it_grows(people: People) -> None:
    climb = climb_of(people)
    step(climb, HONEST)
    step(climb, GAMED)
    work()
    climb.refresh_from_db()
    resume_climb(actor=people.editor, climb=climb)
    (alarm,) = alarms_of(climb.pk)
    assert alarm.acknowledged_by == people.editor
    assert not open_alarms(people.project.pk)
    step(climb, GAMED)
    work()
    climb.refresh_from_db()
    assert climb.state == "running"
    assert HackingAlarm.objects.count() == 1


def test_nothing_is_raised_while_both_rubrics_agree(people: People) -> None:
    climb = climb_of(people)
    for _ in range(3):
        step(climb, HONEST)
    work()
    assert not HackingAlarm.objects.exists()
    assert Regrade.objects.count() == 3


def test_without_a_held_out_rubric_length_is_still_watched(people: People) -> None:
    climb = climb_of(people, held_out_rubric=None)
    step(climb, HONEST)
    step(climb, HONEST * 5)
    assert work() == 2
    (alarm,) = open_alarms(people.project.pk)
    assert (alarm.signal, alarm.detail["subject"], alarm.level) == ("length", "answer", "warn")
    climb.refresh_from_db()
    assert climb.state == "running"
    assert not Regrade.objects.exists()


def test_criteria_that_come_apart_are_seen(people: People) -> None:
    climb = climb_of(people, held_out_rubric=None)
    version = create_rubric_version(
        rubric=climb.rubric_version.rubric,
        spec={
            "criteria": [
                {"id": "polite", "kind": "exact", "name": "Polite"},
                {"id": "right", "kind": "exact", "name": "Right"},
            ]
        },
    )
    climb.rubric_version = version
    climb.save()
    for polite, right in ((0.2, 0.9), (0.9, 0.3)):
        run = step(climb, HONEST)
        for rollout in run.rollouts.all():
            for criterion, value in (("polite", polite), ("right", right)):
                VerdictRecord.objects.create(
                    rollout=rollout,
                    criterion=criterion,
                    name=criterion,
                    state="scored",
                    value=value,
                    reason="r",
                )
    work()
    (alarm,) = open_alarms(people.project.pk)
    assert (alarm.signal, alarm.detail["subject"], alarm.level) == ("criterion", "Polite", "pause")


def test_a_search_is_watched_by_harness_and_sealed_tasks_never(people: People) -> None:
    climb = climb_of(people)
    step(climb, HONEST, phase="search")
    step(climb, GAMED, phase="search", harness=make_harness(people.project))
    step(climb, GAMED, phase="echo_test")
    work()
    assert [a.signal for a in open_alarms(people.project.pk)] == ["gap"]
    assert Regrade.objects.count() == 2


def test_few_tasks_are_no_ground_for_an_alarm(people: People) -> None:
    climb = climb_of(people)
    climb.environment_version = make_environment(people.project, tasks=3)
    climb.save()
    step(climb, HONEST)
    step(climb, GAMED)
    work()
    assert not HackingAlarm.objects.exists()


def test_a_held_out_rubric_that_is_gone_stops_nothing(people: People) -> None:
    climb = climb_of(people)
    climb.config["watch"]["held_out_rubric"] = 999_999
    climb.save()
    step(climb, HONEST)
    step(climb, GAMED)
    work()
    climb.refresh_from_db()
    assert climb.state == "running"


def test_the_same_news_twice_grades_and_tells_once(people: People) -> None:
    climb = climb_of(people)
    step(climb, HONEST)
    run = step(climb, GAMED)
    work()
    with transaction.atomic():
        queue_watch(climb_run=run.climb_run)
    Job.objects.filter(kind="climbs.watch").update(state=JobState.QUEUED)
    work()
    assert Regrade.objects.count() == 2
    assert len(told(climb, "alarm")) == 1


def test_the_end_of_a_run_is_heard(people: People) -> None:
    climb = climb_of(people)
    run = step(climb, HONEST)
    Job.objects.all().delete()
    run.key = "climb-run"
    run.save()
    with transaction.atomic():
        run_ended.send(sender=Run, run=run)
    assert Job.objects.filter(kind="climbs.watch").exists()


def test_a_held_out_rubric_is_another_one_of_the_project(people: People) -> None:
    climb = climb_of(people)
    own, other = climb.rubric_version, climb.config["watch"]["held_out_rubric"]
    check_held_out(people.project, own, None)
    check_held_out(people.project, own, other)
    with pytest.raises(ClimbError, match="another one"):
        check_held_out(people.project, own, own.pk)
    with pytest.raises(ClimbError, match="no rubric version"):
        check_held_out(people.project, own, 999_999)


def test_who_may_acknowledge(people: People) -> None:
    climb = climb_of(people)
    step(climb, HONEST)
    step(climb, GAMED)
    work()
    alarm = HackingAlarm.objects.get()
    with pytest.raises(PermissionDenied):
        acknowledge(actor=people.member, alarm=alarm)
    assert acknowledge(actor=people.editor, alarm=alarm)
    assert not acknowledge(actor=people.owner, alarm=alarm)
    alarm.refresh_from_db()
    assert alarm.acknowledged_by == people.editor
    climb.refresh_from_db()
    assert climb.state == "paused"
