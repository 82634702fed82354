"""Criteria that a model proposes for a rubric: asked for, followed, settled."""

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
from orchestrator.api.rubrics import OfRubric
from orchestrator.api.shapes import page_of
from orchestrator.grading.models import RubricSuggestion
from orchestrator.grading.queries import suggestions_in
from orchestrator.grading.suggest import services
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project, User


class SuggestionAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    rubric: Annotated[int, "Its id."]
    state: str
    has_ended: bool
    progress: str
    error: str
    criteria: Annotated[list[Any], "[{criterion, why, settled: '', taken or dismissed}]"]
    left_out: Annotated[list[Any], "[{name, reason}]: proposed, and not usable."]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class NewSuggestion(serializers.Serializer[Any]):
    model = work.id_field(help_text="Who is asked.")
    environment = serializers.SlugField(max_length=64, help_text="Slug of the environment.")
    version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)
    n_traces = serializers.IntegerField(
        min_value=0,
        max_value=services.MAX_TRACES,
        default=3,
        help_text="Rollouts that the model is shown, at most.",
    )


class Settled(serializers.Serializer[Any]):
    number = serializers.IntegerField(min_value=0, max_value=10_000, help_text="Of the criterion.")
    how = serializers.ChoiceField(["taken", "dismissed"])


class _Suggestion(steering.Steered):
    area = "rubrics"

    @staticmethod
    def work_in(project: Project) -> Any:
        return suggestions_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return suggestion_answer(request, work)


class Suggestions(OfRubric, _Suggestion):
    list_page = "rubric_edit"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        rubric = asked["rubric"]
        endpoint = chosen(endpoints_in(project.pk), "model", pk=asked["model"])
        version = work.environment_version(project, asked["environment"], asked.get("version"))
        return lambda: services.ask_for_suggestions(
            actor=actor,
            rubric=rubric,
            endpoint=endpoint,
            environment_version=version,
            n_traces=asked["n_traces"],
        )

    @operation(page_of(SuggestionAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """What models proposed, newest first."""
        return self.listed_of(request, project_id, rubric_id)

    @operation(
        SuggestionAnswer,
        body=NewSuggestion,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Asks a model for criteria. Editors."""
        return self.started(request, project_id, NewSuggestion, rubric_id=rubric_id)


class SuggestionDetail(steering.Detail, _Suggestion):
    @operation(SuggestionAnswer)
    def get(self, request: Request, project_id: int, suggestion_id: int) -> Response:
        """One answer of a model."""
        return self.answered(request, project_id, suggestion_id)


class SuggestionEvents(steering.States, _Suggestion):
    @following.documented
    def get(self, request: Request, project_id: int, suggestion_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes."""
        return self.answered(request, project_id, suggestion_id)


class SuggestionAction(steering.Action, _Suggestion):
    subject = "suggestion"
    actions = {"cancel": services.cancel_suggestion}

    @operation(SuggestionAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, suggestion_id: int, action: str) -> Response:
        """Cancels it. Editors."""
        return self.done(request, project_id, suggestion_id, action)


class SuggestionSettle(_Suggestion):
    @operation(SuggestionAnswer, body=Settled, says="Remembered; the draft stays as it is.")
    def post(self, request: Request, project_id: int, suggestion_id: int) -> Response:
        """Remembers that a proposed criterion was taken into the draft, or dismissed. Editors."""
        project = project_for_edit(request.user, project_id)
        suggestion = found(suggestions_in(project.pk), pk=suggestion_id)
        asked = read(Settled, request.data)
        services.settle(actor=actor_of(request), suggestion=suggestion, **asked)
        return Response(
            suggestion_answer(request, found(suggestions_in(project.pk), pk=suggestion.pk))
        )


def suggestion_answer(request: Request, row: RubricSuggestion) -> SuggestionAnswer:
    project_id = row.rubric.project_id
    return {
        "id": row.pk,
        "url": api_url(request, "suggestion", project_id, row.pk),
        "html_url": page_url(request, "rubric_edit", project_id, row.rubric_id),
        "events_url": api_url(request, "suggestion_events", project_id, row.pk),
        "rubric": row.rubric_id,
        "state": row.state,
        "has_ended": row.state not in services.OPEN_STATES,
        "progress": row.progress,
        "error": row.error,
        "criteria": row.criteria,
        "left_out": row.left_out,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }
