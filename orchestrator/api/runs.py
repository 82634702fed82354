"""Runs: started, listed, followed, cancelled."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging, parts, work
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of
from orchestrator.environments.models import Split
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.runs.models import Purpose, Run, RunState
from orchestrator.runs.queries import EMPTY_TALLY, Tally, name_parts, runs_in, tallies, tally
from orchestrator.runs.services import cancel_run
from orchestrator.runs.starting import MAX_ROLLOUTS, Asked, Planned, plan_of, start_planned


class RunAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    purpose: Annotated[str, "What it is for: evaluate, baseline, optimise, certify, train, ci."]
    label: str
    state: str
    has_ended: bool
    error: Annotated[str, "Why it failed or could not be scored; empty otherwise."]
    environment: parts.EnvironmentRef
    rubric: parts.RubricRef
    model: parts.ModelRef
    adapter: Annotated[str, "Name of the trained weights; empty for the model as it is."]
    sampling: dict[str, Any]
    seed: int
    concurrency: int
    rollouts: parts.TallyAnswer
    isolation: dict[str, Any]
    warnings: Annotated[list[dict[str, Any]], "What to know before believing the numbers."]
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


class RunsQuery(serializers.Serializer[Any]):
    purpose = serializers.ChoiceField(Purpose.choices, required=False)
    state = serializers.ChoiceField(RunState.choices, required=False)


class NewRun(work.WorkOn):
    split = serializers.ChoiceField(
        [Split.TRAIN.value, Split.SELECT.value], default=Split.SELECT.value
    )
    n_tasks = serializers.IntegerField(
        min_value=1,
        max_value=MAX_ROLLOUTS,
        required=False,
        allow_null=True,
        help_text="The first so many of the split; all if left out.",
    )
    replicates = serializers.IntegerField(min_value=1, max_value=1000, default=1)
    concurrency = serializers.IntegerField(min_value=1, max_value=512, default=32)
    label = work.label_field(default="", allow_blank=True)


class Runs(Endpoint):
    area = "runs"

    @operation(page_of(RunAnswer), query=RunsQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The runs of a project, newest first."""
        project = project_for_view(request.user, project_id)
        asked = read(RunsQuery, request.query_params)
        return Response(
            paging.paged(
                request,
                runs_in(project.pk, **asked).select_related(None),
                lambda runs: run_answers(request, runs),
                html_url=page_url(request, "runs", project.pk),
            )
        )

    @operation(
        RunAnswer,
        body=NewRun,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; its rollouts appear as they start.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Starts a run on tasks of an open split. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewRun, request.data)

        def start(planned: Planned) -> Response:
            run = start_planned(actor=actor_of(request), project=project, planned=planned)
            location = api_url(request, "run", project.pk, run.pk)
            return created(
                request, new_run_answer(request, run, planned.n_rollouts), location, status=202
            )

        return idempotency.once_prepared(request, lambda: plan_of(asked_of(project, asked)), start)


class RunDetail(Endpoint):
    area = "runs"

    @operation(RunAnswer)
    def get(self, request: Request, project_id: int, run_id: int) -> Response:
        """One run with the counts of its rollouts."""
        project = project_for_view(request.user, project_id)
        return Response(run_answer(request, found(runs_in(project.pk), pk=run_id)))


class RunCancel(Endpoint):
    area = "runs"

    @operation(RunAnswer, status=202, says="Asked to end; what has a score keeps it.")
    def post(self, request: Request, project_id: int, run_id: int) -> Response:
        """Ends a run; one that has ended stays as it is. Editors."""
        project = project_for_edit(request.user, project_id)
        run = found(runs_in(project.pk), pk=run_id)
        cancel_run(actor=actor_of(request), run=run)
        return Response(run_answer(request, found(runs_in(project.pk), pk=run_id)), status=202)


class RunEvents(Endpoint):
    area = "runs"

    @following.documented
    def get(self, request: Request, project_id: int, run_id: int) -> HttpResponseBase:
        """What the run has told so far, or as it tells it."""
        project = project_for_view(request.user, project_id)
        run = found(runs_in(project.pk).select_related("stream"), pk=run_id)
        page = page_url(request, "run", project.pk, run.pk)
        return following.events_answer(request, run.stream, has_ended=run.has_ended, html_url=page)


def asked_of(project: Project, asked: dict[str, Any]) -> Asked:
    """The objects that a request names. Raises ValidationError."""
    parts_asked = work.parts_of(project, asked)
    return Asked(
        version=parts_asked.environment_version,
        split=asked["split"],
        rubric_version=parts_asked.rubric_version,
        model=parts_asked.model,
        harness=parts_asked.harness,
        n_tasks=asked.get("n_tasks"),
        replicates=asked["replicates"],
        concurrency=asked["concurrency"],
        label=asked["label"].strip(),
    )


def run_answers(request: Request, runs: list[Run]) -> list[RunAnswer]:
    name_parts(runs)
    counted = tallies(run.pk for run in runs)
    return [_answer(request, run, counted.get(run.pk, EMPTY_TALLY)) for run in runs]


def new_run_answer(request: Request, run: Run, n_planned: int) -> RunAnswer:
    """Of one whose rollouts are all to come."""
    return _answer(request, run, replace(EMPTY_TALLY, planned=n_planned))


def run_answer(request: Request, run: Run) -> RunAnswer:
    return _answer(request, run, tally(run.pk))


def _answer(request: Request, run: Run, counts: Tally) -> RunAnswer:
    project_id = run.project_id
    return {
        "id": run.pk,
        "url": api_url(request, "run", project_id, run.pk),
        "html_url": page_url(request, "run", project_id, run.pk),
        "events_url": api_url(request, "run_events", project_id, run.pk),
        "purpose": run.purpose,
        "label": run.label,
        "state": run.state,
        "has_ended": run.has_ended,
        "error": run.error,
        "environment": parts.environment_ref(run.environment_version),
        "rubric": parts.rubric_ref(run.rubric_version),
        "model": parts.model_ref(run.model),
        "adapter": run.adapter_name,
        "sampling": run.sampling,
        "seed": run.seed,
        "concurrency": run.concurrency,
        "rollouts": parts.tally_answer(counts),
        "isolation": run.isolation,
        "warnings": run.warnings,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }
