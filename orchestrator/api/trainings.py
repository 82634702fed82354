"""Training jobs, their curves and checkpoints."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import endpoints, following, idempotency, paging, parts, steering, work
from orchestrator.api.base import (
    actor_of,
    api_url,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.runs.queries import finite_or_none
from orchestrator.trainings import services
from orchestrator.trainings.checkpoints import promote, start_merge
from orchestrator.trainings.project_queries import checkpoints_in, trainings_in
from orchestrator.trainings.queries import CheckpointRow, checkpoints_of, row_of, told
from orchestrator.trainings.settings import TrainSettings
from training.models import TrainingJob, TrainingState


class TrainingAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    name: str
    origin: Annotated[str, "`own`, or `climb` where a climb asked for it."]
    state: str
    has_ended: bool
    pause_reason: Annotated[str, "Not empty: it waits between two steps."]
    step: int
    total_steps: int
    chosen_step: Annotated[int, "Whose weights are the result; 0 until there are any."]
    chosen_reason: str
    error: str
    priority: int
    device: Annotated[str, "Empty while it waits for one."]
    estimate: dict[str, Any]
    settings: dict[str, Any]
    manifest_sha256: str
    environment: parts.EnvironmentRef | None
    rubric: parts.RubricRef | None
    model: parts.ModelRef | None
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


class CheckpointAnswer(TypedDict):
    step: int
    url: str
    html_url: str
    metrics: dict[str, Any]
    held_out: Annotated[float | None, "Mean of its evaluation on `select`."]
    n_scored: int
    is_chosen: bool
    is_kept: Annotated[bool, "Whether its weights are still on disk."]
    promoted_as: parts.ModelRef | None
    merge: dict[str, Any]
    created_at: datetime.datetime


class CheckpointsAnswer(TypedDict):
    items: Annotated[list[CheckpointAnswer], "Newest first."]
    html_url: str


class CurvesAnswer(TypedDict):
    steps: Annotated[list[dict[str, Any]], "Metrics of each step, oldest first."]
    evaluations: Annotated[list[dict[str, Any]], "On the split `select`."]
    html_url: str


class TrainingsQuery(serializers.Serializer[Any]):
    state = serializers.ChoiceField(TrainingState.choices, required=False)


class NewTraining(work.WorkOn):
    name = serializers.CharField(max_length=120, default="", allow_blank=True)
    settings = serializers.DictField(default=dict, help_text="docs/how-to/train-weights.md.")
    seed = serializers.IntegerField(min_value=0, max_value=2**31 - 1, default=0)


class PriorityChange(serializers.Serializer[Any]):
    priority = serializers.IntegerField(
        min_value=-services.MAX_PRIORITY, max_value=services.MAX_PRIORITY
    )


class Promotion(serializers.Serializer[Any]):
    name = serializers.CharField(
        max_length=120, default="", allow_blank=True, help_text="Of the model; one is made up."
    )


class _Training(steering.Steered):
    area = "trainings"

    @staticmethod
    def work_in(project: Project) -> Any:
        return trainings_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return training_answer(request, work)


class Trainings(steering.Listing, _Training):
    list_page = "training"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        chosen = work.parts_of(project, asked)
        settings = work.settings_of(TrainSettings, asked["settings"])
        return lambda: services.start_training(
            actor=actor,
            project=project,
            name=asked["name"],
            environment_version=chosen.environment_version,
            rubric_version=chosen.rubric_version,
            model=chosen.model,
            harness=work.harness_or_plain(project, chosen),
            settings=settings,
            seed=asked["seed"],
        )

    @operation(page_of(TrainingAnswer), query=TrainingsQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The training jobs of a project, newest first."""
        return self.listed(request, project_id, **read(TrainingsQuery, request.query_params))

    @operation(
        TrainingAnswer,
        body=NewTraining,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; it begins as soon as a device is free.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Starts a training of its own. Editors."""
        return self.started(request, project_id, NewTraining)


class TrainingDetail(steering.Detail, _Training):
    @operation(TrainingAnswer)
    def get(self, request: Request, project_id: int, job_id: int) -> Response:
        """One training job."""
        return self.answered(request, project_id, job_id)


class TrainingAction(steering.Action, _Training):
    subject = "job"
    actions = {
        "pause": services.pause_training,
        "resume": services.resume_training,
        "cancel": services.cancel_training,
    }

    @operation(TrainingAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, job_id: int, action: str) -> Response:
        """Pauses, resumes or cancels it. Editors."""
        return self.done(request, project_id, job_id, action)


class TrainingPriority(_Training):
    @operation(TrainingAnswer, body=PriorityChange)
    def put(self, request: Request, project_id: int, job_id: int) -> Response:
        """Moves a waiting job in the queue. Editors."""
        project = project_for_edit(request.user, project_id)
        job = found(trainings_in(project.pk), pk=job_id)
        asked = read(PriorityChange, request.data)
        services.set_priority(actor=actor_of(request), job=job, priority=asked["priority"])
        return Response(training_answer(request, found(trainings_in(project.pk), pk=job_id)))


class TrainingEvents(steering.Events, _Training):
    @staticmethod
    def page(request: Request, work: Any) -> str:
        return page_url(request, "training_job", work.project_id, work.pk)

    @following.documented
    def get(self, request: Request, project_id: int, job_id: int) -> HttpResponseBase:
        """What it has told so far, or as it tells it."""
        return self.answered(request, project_id, job_id)


class TrainingCurves(_Training):
    @operation(CurvesAnswer)
    def get(self, request: Request, project_id: int, job_id: int) -> Response:
        """Its metrics step by step."""
        project = project_for_view(request.user, project_id)
        job = found(trainings_in(project.pk), pk=job_id)
        steps, evaluations, _ = told(job.stream_id)
        answer: CurvesAnswer = {
            "steps": steps,
            "evaluations": evaluations,
            "html_url": page_url(request, "training_job", project.pk, job.pk),
        }
        return Response(answer)


class Checkpoints(_Training):
    @operation(CheckpointsAnswer)
    def get(self, request: Request, project_id: int, job_id: int) -> Response:
        """Checkpoints that are kept, were evaluated or were promoted."""
        project = project_for_view(request.user, project_id)
        job = found(trainings_in(project.pk), pk=job_id)
        page = page_url(request, "training_job", project.pk, job.pk)
        answer: CheckpointsAnswer = {
            "items": [checkpoint_answer(request, row, page) for row in checkpoints_of(job)],
            "html_url": page,
        }
        return Response(answer)


class CheckpointPromotion(_Training):
    @operation(
        endpoints.ModelAnswer,
        body=Promotion,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="A model of the project.",
    )
    def post(self, request: Request, project_id: int, job_id: int, step: int) -> Response:
        """Makes a checkpoint a model that runs, searches and climbs can name. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(Promotion, request.data)
        checkpoint = found(checkpoints_in(project.pk), training_job_id=job_id, step=step)

        def make() -> Response:
            model = promote(actor=actor_of(request), checkpoint=checkpoint, name=asked["name"])
            answer = endpoints.model_answer(request, model)
            return created(request, answer, answer["url"])

        return idempotency.once(request, make)


class CheckpointMerge(_Training):
    @operation(
        CheckpointAnswer,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; `merge` of the checkpoint tells how far it is.",
    )
    def post(self, request: Request, project_id: int, job_id: int, step: int) -> Response:
        """Merges its adapter into the weights, in fp32. Editors."""
        project = project_for_edit(request.user, project_id)
        job = found(trainings_in(project.pk), pk=job_id)
        checkpoint = found(checkpoints_in(project.pk), training_job=job, step=step)
        url = api_url(request, "checkpoint", project.pk, job.pk, step)

        def start() -> Response:
            start_merge(actor=actor_of(request), checkpoint=checkpoint)
            return created(request, _checkpoint(request, project, job, step), url, status=202)

        return idempotency.once(request, start)


class CheckpointDetail(_Training):
    @operation(CheckpointAnswer)
    def get(self, request: Request, project_id: int, job_id: int, step: int) -> Response:
        """One checkpoint."""
        project = project_for_view(request.user, project_id)
        job = found(trainings_in(project.pk), pk=job_id)
        return Response(_checkpoint(request, project, job, step))


def _checkpoint(request: Request, project: Project, job: Any, step: int) -> CheckpointAnswer:
    checkpoint = found(checkpoints_in(project.pk), training_job=job, step=step)
    page = page_url(request, "training_job", project.pk, job.pk)
    return checkpoint_answer(request, row_of(checkpoint), page)


def training_answer(request: Request, job: TrainingJob) -> TrainingAnswer:
    where = (job.project_id, job.pk)
    version, rubric = job.environment_version, job.rubric_version
    return {
        "id": job.pk,
        "url": api_url(request, "training", *where),
        "html_url": page_url(request, "training_job", *where),
        "events_url": api_url(request, "training_events", *where),
        "name": job.name,
        "origin": job.origin,
        "state": job.state,
        "has_ended": job.has_ended,
        "pause_reason": job.pause_reason,
        "step": job.step,
        "total_steps": job.total_steps,
        "chosen_step": job.chosen_step,
        "chosen_reason": job.chosen_reason,
        "error": job.error,
        "priority": job.priority,
        "device": job.device,
        "estimate": job.estimate,
        "settings": job.settings,
        "manifest_sha256": job.manifest_sha256,
        "environment": None if version is None else parts.environment_ref(version),
        "rubric": None if rubric is None else parts.rubric_ref(rubric),
        "model": None if job.model is None else parts.model_ref(job.model),
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }


def checkpoint_answer(request: Request, row: CheckpointRow, page: str) -> CheckpointAnswer:
    checkpoint = row.checkpoint
    job = checkpoint.training_job
    promoted = checkpoint.promoted_as
    return {
        "step": checkpoint.step,
        "url": api_url(request, "checkpoint", job.project_id, job.pk, checkpoint.step),
        "html_url": page,
        "metrics": checkpoint.metrics,
        "held_out": finite_or_none(row.held_out),
        "n_scored": row.n_scored,
        "is_chosen": row.is_chosen,
        "is_kept": row.is_kept,
        "promoted_as": None if promoted is None else parts.model_ref(promoted),
        "merge": checkpoint.merge,
        "created_at": checkpoint.created_at,
    }
