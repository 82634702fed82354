"""The same training at several values of λ, with one verdict."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import idempotency, paging, steering, work
from orchestrator.api.base import api_url, operation, page_url
from orchestrator.api.shapes import page_of
from orchestrator.projects.models import Project, User
from orchestrator.runs.queries import finite_or_none
from orchestrator.trainings import sweeps
from orchestrator.trainings.project_queries import sweeps_in
from orchestrator.trainings.settings import TrainSettings
from training.models import Sweep

MOST = 24


class ComparedAnswer(TypedDict):
    """One value of λ, held against the first on the same seeds and tasks."""

    value: float
    mean: Annotated[float | None, "Over seeds and tasks."]
    difference: float | None
    low: float | None
    high: float | None
    seeds: Annotated[int, "That both sides have."]
    seeds_ahead: int
    tasks: int
    word: Annotated[str, "reference, better, regressed, inconclusive or infrastructure."]


class SweepAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    name: str
    lambdas: Annotated[list[float], "Ascending; the first is the baseline."]
    seeds: list[int]
    jobs: Annotated[list[str], "Addresses of its training jobs, which have events to follow."]
    n_ended: int
    has_ended: bool
    verdict: Annotated[str, "better, inconclusive or infrastructure; on what there is so far."]
    best: Annotated[float | None, "The value that is shown better, if there is one."]
    sentence: str
    compared: list[ComparedAnswer]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class NewSweep(work.WorkOn):
    name = serializers.CharField(max_length=120, default="", allow_blank=True)
    settings = serializers.DictField(default=dict, help_text="docs/how-to/train-weights.md.")
    lambdas = serializers.ListField(
        child=serializers.FloatField(min_value=0, max_value=1e6), min_length=2, max_length=MOST
    )
    seeds = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=2**31 - 1),
        min_length=1,
        max_length=MOST,
    )


class _Sweep(steering.Steered):
    area = "trainings"

    @staticmethod
    def work_in(project: Project) -> Any:
        return sweeps_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return sweep_answer(request, work)


class Sweeps(steering.Listing, _Sweep):
    list_page = "training"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        chosen = work.parts_of(project, asked)
        settings = work.settings_of(TrainSettings, asked["settings"])
        return lambda: sweeps.start_sweep(
            actor=actor,
            project=project,
            name=asked["name"],
            environment_version=chosen.environment_version,
            rubric_version=chosen.rubric_version,
            model=chosen.model,
            harness=work.harness_or_plain(project, chosen),
            settings=settings,
            lambdas=asked["lambdas"],
            seeds=asked["seeds"],
        )

    @operation(page_of(SweepAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The sweeps of a project, newest first."""
        return self.listed(request, project_id)

    @operation(
        SweepAnswer,
        body=NewSweep,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued, seed by seed.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Starts one training for each value and seed. Editors."""
        return self.started(request, project_id, NewSweep)


class SweepDetail(steering.Detail, _Sweep):
    @operation(SweepAnswer)
    def get(self, request: Request, project_id: int, sweep_id: int) -> Response:
        """One sweep with its verdict so far."""
        return self.answered(request, project_id, sweep_id)


class SweepAction(steering.Action, _Sweep):
    subject = "sweep"
    actions = {"cancel": sweeps.cancel_sweep}

    @operation(SweepAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, sweep_id: int, action: str) -> Response:
        """Ends what has not ended; what was measured stays. Editors."""
        return self.done(request, project_id, sweep_id, action)


def sweep_answer(request: Request, sweep: Sweep) -> SweepAnswer:
    jobs = sorted(sweep.jobs.all(), key=lambda job: job.pk)
    where = (sweep.project_id, sweep.pk)
    verdict: Any = sweep.verdict or asdict(sweeps.current_verdict(sweep))
    return {
        "id": sweep.pk,
        "url": api_url(request, "sweep", *where),
        "html_url": page_url(request, "training_sweep", *where),
        "name": sweep.name,
        "lambdas": sweep.lambdas,
        "seeds": sweep.seeds,
        "jobs": [api_url(request, "training", sweep.project_id, job.pk) for job in jobs],
        "n_ended": sum(job.has_ended for job in jobs),
        "has_ended": all(job.has_ended for job in jobs),
        "verdict": verdict["word"],
        "best": verdict["best"],
        "sentence": verdict["sentence"],
        "compared": [_compared(each) for each in verdict["compared"]],
        "created_at": sweep.created_at,
        "ended_at": sweep.ended_at,
    }


def _compared(each: Mapping[str, Any]) -> ComparedAnswer:
    told: Any = dict(each)
    for name in ("mean", "difference", "low", "high"):
        told[name] = finite_or_none(told[name])
    answer: ComparedAnswer = told
    return answer
