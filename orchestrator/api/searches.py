"""Searches for a better harness: started, steered, decided on, followed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, TypedDict

from django.db import transaction
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from optimizer.models import Search, SearchState
from orchestrator.api import editing, following, idempotency, paging, parts, steering, work
from orchestrator.api.base import (
    actor_of,
    api_url,
    conflicts,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.searches import services
from orchestrator.searches.queries import searches_in
from orchestrator.searches.settings import BudgetSettings, SearchSettings

STEER = "pause|resume|cancel"


class SearchAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    name: str
    state: str
    has_ended: bool
    phase: str
    progress: Annotated[float, "Share of the rollouts at most, 0 to 1."]
    doing: str
    error: str
    environment: parts.EnvironmentRef | None
    rubric: parts.RubricRef | None
    model: parts.ModelRef | None
    seed_harness: parts.HarnessRef
    settings: dict[str, Any]
    seed: int
    outcome: Annotated[dict[str, Any], "Of a finished one: verdict, reason, winner and more."]
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


class SearchesQuery(serializers.Serializer[Any]):
    state = serializers.ChoiceField(SearchState.choices, required=False)


class NewSearch(work.WorkOn):
    name = serializers.CharField(max_length=120, default="", allow_blank=True)
    settings = serializers.DictField(
        default=dict, help_text="Engine, proposers, budget …: docs/how-to/improve-a-harness.md."
    )
    seed = serializers.IntegerField(
        min_value=0, max_value=2**53, required=False, help_text="To repeat one."
    )


class Decision(serializers.Serializer[Any]):
    approve = serializers.BooleanField()
    note = serializers.CharField(max_length=2000, default="", allow_blank=True)


class NudgeText(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=services.MAX_NUDGE)


class NudgeAnswer(TypedDict):
    id: int
    html_url: str
    text: str


class SearchBudgetAnswer(TypedDict):
    """Null: no cap of its own."""

    rollouts: Annotated[int, "Of the agent; decided at the start."]
    tokens: Annotated[int | None, "Of the agent, in and out."]
    usd: Annotated[float | None, "Of the agent."]
    seconds: Annotated[int | None, "Of runs, wall time."]
    judge_usd: float | None
    judge_tokens: int | None
    proposer_usd: float | None
    proposer_tokens: int | None
    html_url: str


def _count() -> serializers.IntegerField:
    return serializers.IntegerField(min_value=1, max_value=10**12, required=False, allow_null=True)


def _usd() -> serializers.FloatField:
    return serializers.FloatField(min_value=0.01, max_value=1e9, required=False, allow_null=True)


class SearchCaps(serializers.Serializer[Any]):
    """What is left out stays; null takes a cap away."""

    tokens = _count()
    usd = _usd()
    seconds = _count()
    judge_usd = _usd()
    judge_tokens = _count()
    proposer_usd = _usd()
    proposer_tokens = _count()


class _Search(steering.Steered):
    area = "searches"

    @staticmethod
    def work_in(project: Project) -> Any:
        return searches_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return search_answer(request, work)


class Searches(steering.Listing, _Search):
    list_page = "searches"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        chosen = work.parts_of(project, asked)
        settings = work.settings_of(SearchSettings, asked["settings"])
        return lambda: services.start_search(
            actor=actor,
            project=project,
            form=services.SearchForm(
                name=asked["name"].strip(),
                environment_version=chosen.environment_version,
                rubric_version=chosen.rubric_version,
                model=chosen.model,
                seed_harness=work.harness_or_plain(project, chosen),
                settings=settings,
            ),
            seed=asked.get("seed"),
        )

    @operation(page_of(SearchAnswer), query=SearchesQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The searches of a project, newest first; those of climbs too."""
        return self.listed(request, project_id, **read(SearchesQuery, request.query_params))

    @operation(
        SearchAnswer,
        body=NewSearch,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Starts a search from a seed harness. Editors."""
        return self.started(request, project_id, NewSearch)


class SearchDetail(steering.Detail, _Search):
    @operation(SearchAnswer)
    def get(self, request: Request, project_id: int, search_id: int) -> Response:
        """One search."""
        return self.answered(request, project_id, search_id)


class SearchAction(steering.Action, _Search):
    subject = "search"
    actions = {
        "pause": services.pause_search,
        "resume": services.resume_search,
        "cancel": services.cancel_search,
    }

    @operation(SearchAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, search_id: int, action: str) -> Response:
        """Pauses, resumes or cancels it. Editors."""
        return self.done(request, project_id, search_id, action)


class SearchEvents(steering.Events, _Search):
    @staticmethod
    def page(request: Request, work: Any) -> str:
        return page_url(request, "search", work.project_id, work.pk)

    @following.documented
    def get(self, request: Request, project_id: int, search_id: int) -> HttpResponseBase:
        """What it has told so far, or as it tells it."""
        return self.answered(request, project_id, search_id)


class SearchDecision(_Search):
    @operation(
        SearchAnswer, body=Decision, parameters=[idempotency.PARAMETER], says="It is decided."
    )
    def post(self, request: Request, project_id: int, search_id: int) -> Response:
        """Releases what a search found, or keeps the seed, where it waits for that. Editors."""
        project = project_for_edit(request.user, project_id)
        search = found(searches_in(project.pk), pk=search_id)
        asked = read(Decision, request.data)
        decide: Any = services.approve if asked["approve"] else services.decline

        def decided() -> Response:
            with conflicts():
                decide(actor=actor_of(request), search=search, note=asked["note"])
            return Response(search_answer(request, found(searches_in(project.pk), pk=search_id)))

        return idempotency.once(request, decided)


class SearchNudges(_Search):
    @operation(
        NudgeAnswer, body=NudgeText, parameters=[idempotency.PARAMETER], status=201, says="Kept."
    )
    def post(self, request: Request, project_id: int, search_id: int) -> Response:
        """A comment that the next reflection reads. Editors."""
        project = project_for_edit(request.user, project_id)
        search = found(searches_in(project.pk), pk=search_id)
        asked = read(NudgeText, request.data)

        def keep() -> Response:
            made = services.nudge(actor=actor_of(request), search=search, text=asked["text"])
            page = page_url(request, "search", project.pk, search.pk)
            answer: NudgeAnswer = {"id": made.pk, "html_url": page, "text": made.text}
            return Response(answer, status=201)

        return idempotency.once(request, keep)


class SearchBudget(_Search):
    @operation(SearchBudgetAnswer)
    def get(self, request: Request, project_id: int, search_id: int) -> Response:
        """What it may spend, by role."""
        project = project_for_view(request.user, project_id)
        return _budget_told(request, found(searches_in(project.pk), pk=search_id))

    @operation(SearchBudgetAnswer, body=SearchCaps, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int, search_id: int) -> Response:
        """Other caps for the rest of it, none below what is spent. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(SearchCaps, request.data)
        with transaction.atomic():
            search = found(searches_in(project.pk).select_for_update(of=("self",)), pk=search_id)
            before = _budget_of(search)
            editing.require_match(request, asdict(before))
            with conflicts():
                services.set_budget(
                    actor=actor_of(request), search=search, budget=replace(before, **asked)
                )
        return _budget_told(request, found(searches_in(project.pk), pk=search_id))


def _budget_of(search: Search) -> BudgetSettings:
    return SearchSettings.from_json(search.settings).budget


def _budget_told(request: Request, search: Search) -> Response:
    budget = asdict(_budget_of(search))
    answer = {**budget, "html_url": page_url(request, "search", search.project_id, search.pk)}
    return editing.tagged(request, answer, budget)


def search_answer(request: Request, search: Search) -> SearchAnswer:
    where = (search.project_id, search.pk)
    version, rubric = search.environment_version, search.rubric_version
    return {
        "id": search.pk,
        "url": api_url(request, "search", *where),
        "html_url": page_url(request, "search", *where),
        "events_url": api_url(request, "search_events", *where),
        "name": search.name,
        "state": search.state,
        "has_ended": search.has_ended,
        "phase": search.phase,
        "progress": search.progress,
        "doing": search.doing,
        "error": search.error,
        "environment": None if version is None else parts.environment_ref(version),
        "rubric": None if rubric is None else parts.rubric_ref(rubric),
        "model": None if search.model is None else parts.model_ref(search.model),
        "seed_harness": parts.harness_ref(search.seed_harness),
        "settings": search.settings,
        "seed": search.seed,
        "outcome": search.outcome,
        "created_at": search.created_at,
        "started_at": search.started_at,
        "ended_at": search.ended_at,
    }
