"""A better question for a judge: proposed from disagreements, tested on labels kept apart."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.agents.queries import endpoints_in
from orchestrator.api import following, idempotency, paging, steering, work
from orchestrator.api.base import actor_of, api_url, chosen, found, operation, page_url, read
from orchestrator.api.making import made_once
from orchestrator.api.rubrics import DraftAnswer, OfRubric, draft_answer, version_of
from orchestrator.api.shapes import page_of
from orchestrator.grading.models import Alignment
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project, User
from orchestrator.review.alignment import (
    OPEN_STATES,
    cancel_alignment,
    offered_question,
    start_alignment,
    take_over,
)
from orchestrator.review.project_queries import alignments_in


class AlignmentAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    rubric: Annotated[int, "Its id."]
    version: int
    criterion: str
    state: str
    has_ended: bool
    error: str
    n_done: int
    n_total: int
    tokens: int
    cost_usd: float
    question: Annotated[str, "The proposal that was tested; empty until one was."]
    result: Annotated[dict[str, Any], "Counts, kappa and intervals of both questions, p-value."]
    draft_revision: Annotated[int | None, "Of the draft that took the question over."]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class AlignmentsQuery(serializers.Serializer[Any]):
    criterion = serializers.CharField(max_length=64, required=False)


class NewAlignment(serializers.Serializer[Any]):
    criterion = serializers.CharField(max_length=64)
    model = work.id_field(help_text="Who proposes the question.")
    version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)
    max_cost_usd = serializers.FloatField(min_value=0.01, max_value=1000, default=1.0)


class _Alignment(steering.Steered):
    area = "rubrics"

    @staticmethod
    def work_in(project: Project) -> Any:
        return alignments_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return alignment_answer(request, work)


class Alignments(OfRubric, _Alignment):
    list_page = "rubric_calibration"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        version = version_of(asked["rubric"], asked.get("version"))
        endpoint = chosen(endpoints_in(project.pk), "model", pk=asked["model"])
        return lambda: start_alignment(
            actor=actor,
            version=version,
            criterion=asked["criterion"],
            endpoint=endpoint,
            max_cost_usd=asked["max_cost_usd"],
        )

    @operation(page_of(AlignmentAnswer), query=AlignmentsQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Searches for better questions, newest first."""
        asked = read(AlignmentsQuery, request.query_params)
        return self.listed_of(request, project_id, rubric_id, by="version__rubric", **asked)

    @operation(
        AlignmentAnswer,
        body=NewAlignment,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Looks for a question on which judge and people agree more. Editors."""
        return self.started(request, project_id, NewAlignment, rubric_id=rubric_id)


class AlignmentDetail(steering.Detail, _Alignment):
    @operation(AlignmentAnswer)
    def get(self, request: Request, project_id: int, alignment_id: int) -> Response:
        """One of them."""
        return self.answered(request, project_id, alignment_id)


class AlignmentEvents(steering.States, _Alignment):
    @following.documented
    def get(self, request: Request, project_id: int, alignment_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes."""
        return self.answered(request, project_id, alignment_id)


class AlignmentAction(steering.Action, _Alignment):
    subject = "alignment"
    actions = {"cancel": cancel_alignment}

    @operation(AlignmentAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, alignment_id: int, action: str) -> Response:
        """Cancels it. Editors."""
        return self.done(request, project_id, alignment_id, action)


class AlignmentTake(_Alignment):
    @operation(
        DraftAnswer, parameters=[idempotency.PARAMETER], says="In the draft; nothing is published."
    )
    def post(self, request: Request, project_id: int, alignment_id: int) -> Response:
        """Puts the tested question into the rubric's draft. Editors."""
        project = project_for_edit(request.user, project_id)
        alignment = found(alignments_in(project.pk), pk=alignment_id)
        return made_once(
            request,
            lambda: take_over(actor=actor_of(request), alignment=alignment),
            lambda draft: draft_answer(request, draft),
            status=200,
        )


def alignment_answer(request: Request, row: Alignment) -> AlignmentAnswer:
    rubric = row.version.rubric
    page = page_url(request, "rubric_calibration", rubric.project_id, rubric.pk)
    return {
        "id": row.pk,
        "url": api_url(request, "alignment", rubric.project_id, row.pk),
        "html_url": f"{page}#c-{row.criterion}",
        "events_url": api_url(request, "alignment_events", rubric.project_id, row.pk),
        "rubric": rubric.pk,
        "version": row.version.number,
        "criterion": row.criterion,
        "state": row.state,
        "has_ended": row.state not in OPEN_STATES,
        "error": row.error,
        "n_done": row.n_done,
        "n_total": row.n_total,
        "tokens": row.tokens,
        "cost_usd": row.cost_usd,
        "question": offered_question(row),
        "result": row.result,
        "draft_revision": row.draft_revision,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }
