"""Who has a device, who waits and why, and what may be changed."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction

from orchestrator.jobs.models import Job
from orchestrator.projects.models import Role
from orchestrator.trainings import services
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.scheduling import PAUSED, current_plan
from orchestrator.trainings.settings import TrainSettings
from tests.base import People, add_member, make_project
from tests.runs.drive import make_endpoint
from tests.trainings.build import parts, start
from training.models import TrainingJob, TrainingQuota, TrainingState

pytestmark = pytest.mark.django_db


def state(job: TrainingJob) -> tuple[str, str]:
    job.refresh_from_db()
    return job.state, job.device


def test_the_next_job_gets_the_device_when_one_ends(people: People) -> None:
    made = parts(people.project)
    first, second, third = (start(people, made) for _ in range(3))
    assert [job.device for job in (first, second, third)] == ["cpu", "", ""]
    assert Job.objects.filter(kind="training.execute").count() == 1
    assert current_plan().waits[second.pk] == f"Waits for a device: cpu has job {first.pk}."
    services.set_priority(actor=people.editor, job=third, priority=1)
    services.cancel_training(actor=people.editor, job=first)
    assert state(first) == (TrainingState.CANCELLED, "")
    assert [state(second)[1], state(third)[1]] == ["", "cpu"]
    with pytest.raises(TrainingRefused, match="does not wait"):
        services.set_priority(actor=people.editor, job=third, priority=2)


def test_a_waiting_job_can_be_paused_and_cancelled(people: People) -> None:
    made = parts(people.project)
    first, second = (start(people, made) for _ in range(2))
    services.pause_training(actor=people.editor, job=second)
    assert current_plan().waits == {second.pk: PAUSED}
    with pytest.raises(TrainingRefused, match="is paused; it cannot be paused"):
        services.pause_training(actor=people.editor, job=second)
    services.cancel_training(actor=people.editor, job=first)
    assert state(second) == (TrainingState.QUEUED, "")
    services.resume_training(actor=people.editor, job=second)
    assert state(second) == (TrainingState.QUEUED, "cpu")
    services.cancel_training(actor=people.editor, job=second)
    assert state(second) == (TrainingState.CANCELLED, "")
    services.cancel_training(actor=people.editor, job=second)  # ended: nothing to do
    with pytest.raises(TrainingRefused, match="is cancelled; it is not paused"):
        services.resume_training(actor=people.editor, job=second)


def test_a_device_has_one_job_whatever_a_program_does(people: People) -> None:
    made = parts(people.project)
    start(people, made)
    second = start(people, made)
    with pytest.raises(IntegrityError), transaction.atomic():
        TrainingJob.objects.filter(pk=second.pk).update(device="cpu")


def test_a_quota_holds_a_project_back_and_lets_another_go_ahead(
    people: People, settings: Any
) -> None:
    settings.TRAINING_DEVICES = ["cpu", "cuda:0", "cuda:1=80000"]
    made = parts(people.project)
    services.set_quota(
        actor=people.owner, project=people.project, max_running=1, device_s_per_day=None
    )
    first, second = (start(people, made, device="cuda") for _ in range(2))
    assert (first.device, second.device) == ("cuda:0", "")
    other = make_project(owner=people.owner)
    add_member(other, people.editor, Role.EDITOR)
    third = services.start_training(
        actor=people.editor,
        project=other,
        name="",
        settings=TrainSettings(device="cuda"),
        **parts(other),
    )
    assert third.device == "cuda:1"
    assert current_plan().waits[second.pk] == "The project holds 1 of its 1 devices."
    services.set_quota(
        actor=people.owner, project=people.project, max_running=None, device_s_per_day=None
    )
    assert TrainingQuota.objects.count() == 1
    assert "cuda:0 has job" in current_plan().waits[second.pk]
    with pytest.raises(PermissionDenied):
        services.set_quota(
            actor=people.editor, project=people.project, max_running=9, device_s_per_day=None
        )
    with pytest.raises(TrainingRefused, match="less than 0"):
        services.set_quota(
            actor=people.owner, project=people.project, max_running=-1, device_s_per_day=None
        )


def test_what_can_only_fail_is_refused_before_it_is_queued(people: People) -> None:
    made = parts(people.project)
    remote = make_endpoint(people.project, "http://127.0.0.1:9", kind="openai")
    with pytest.raises(TrainingRefused, match="gives text without tokens"):
        start(people, {**made, "model": remote})
    made["environment_version"].tasks.filter(split="select").delete()
    with pytest.raises(TrainingRefused, match="no tasks of the split `select`"):
        start(people, made)
    assert start(people, made, evaluate_every=0).state == TrainingState.QUEUED
    with pytest.raises(TrainingRefused, match="is not positive"):
        start(people, made, evaluate_every=0, learning_rate=0.0)
    made["environment_version"].tasks.filter(split="train").delete()
    with pytest.raises(TrainingRefused, match="no tasks of the split `train`"):
        start(people, made, evaluate_every=0)
    assert TrainingJob.objects.count() == 1


def test_only_editors_start_and_change_trainings(people: People) -> None:
    made = parts(people.project)
    job = start(people, made)
    for change in (
        lambda: services.cancel_training(actor=people.member, job=job),
        lambda: services.pause_training(actor=people.member, job=job),
        lambda: services.set_priority(actor=people.member, job=job, priority=1),
        lambda: services.start_training(
            actor=people.member,
            project=people.project,
            name="",
            settings=TrainSettings(),
            **made,
        ),
    ):
        with pytest.raises(PermissionDenied):
            change()


def test_a_manifest_names_the_job(people: People) -> None:
    made = parts(people.project)
    one, other, third = start(people, made), start(people, made), start(people, made, steps=4)
    assert one.manifest_sha256 == other.manifest_sha256 != third.manifest_sha256
    assert one.manifest["objective"]["lambda_env"] == 0.05
    assert "no model to train there" in one.estimate["error"]
