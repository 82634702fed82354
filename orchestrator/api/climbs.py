"""Climbs: the ladder of baseline, harness and weights."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging, parts, steering, work
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
from orchestrator.climbs import services
from orchestrator.climbs.models import Climb, Rung
from orchestrator.climbs.queries import claim, climbs_in
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.climbs.turns import CHOICES, overrule
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project, User
from orchestrator.runs.queries import finite_or_none


class RungAnswer(TypedDict):
    index: int
    kind: str
    state: str
    verdict: Annotated[str, "reference, better, regressed, inconclusive, infrastructure, or empty."]
    score: float | None
    interval: Annotated[list[float | None], "Of the score, low and high."]
    n_scored: int
    n_errored: int
    rollouts_spent: int
    tokens_spent: int
    cost_usd: float
    progress: float
    doing: str
    sentence: str
    certificate: dict[str, Any]
    html_url: str


class ClimbAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    name: str
    state: str
    has_ended: bool
    phase: str
    error: str
    claim: Annotated[str, "What is certified on the sealed test, in one sentence."]
    environment: parts.EnvironmentRef
    rubric: parts.RubricRef
    model: parts.ModelRef
    settings: dict[str, Any]
    rungs: list[RungAnswer]
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None


class NewClimb(work.WorkOn):
    name = serializers.CharField(max_length=120, default="", allow_blank=True)
    settings = serializers.DictField(
        default=dict, help_text="`search`, `train`, `watch` and caps of the whole climb."
    )


class Overrule(serializers.Serializer[Any]):
    next = serializers.ChoiceField(list(CHOICES))


class _Climb(steering.Steered):
    area = "climbs"

    @staticmethod
    def work_in(project: Project) -> Any:
        return climbs_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return climb_answer(request, work)


class Climbs(steering.Listing, _Climb):
    list_page = "climbs"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        chosen = work.parts_of(project, asked)
        settings = work.settings_of(ClimbSettings, asked["settings"])
        return lambda: services.start_climb(
            actor=actor,
            project=project,
            name=asked["name"].strip() or chosen.environment_version.environment.name,
            environment_version=chosen.environment_version,
            rubric_version=chosen.rubric_version,
            model=chosen.model,
            seed_harness=work.harness_or_plain(project, chosen),
            settings=settings,
        )

    @operation(page_of(ClimbAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The climbs of a project, newest first."""
        return self.listed(request, project_id)

    @operation(
        ClimbAnswer, body=NewClimb, parameters=[idempotency.PARAMETER], status=202, says="Queued."
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Starts a climb. Editors."""
        return self.started(request, project_id, NewClimb)


class ClimbDetail(steering.Detail, _Climb):
    @operation(ClimbAnswer)
    def get(self, request: Request, project_id: int, climb_id: int) -> Response:
        """One climb with its rungs."""
        return self.answered(request, project_id, climb_id)


class ClimbAction(steering.Action, _Climb):
    subject = "climb"
    actions = {
        "pause": services.pause_climb,
        "resume": services.resume_climb,
        "cancel": services.cancel_climb,
    }

    @operation(ClimbAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, climb_id: int, action: str) -> Response:
        """Pauses, resumes or cancels it. Editors."""
        return self.done(request, project_id, climb_id, action)


class ClimbOverrule(_Climb):
    @operation(ClimbAnswer, body=Overrule, status=202, says="It is the next turn.")
    def post(self, request: Request, project_id: int, climb_id: int) -> Response:
        """Decides the next turn instead of the plateau rule. Editors."""
        project = project_for_edit(request.user, project_id)
        climb = found(climbs_in(project.pk), pk=climb_id)
        asked = read(Overrule, request.data)
        with conflicts():
            overrule(actor=actor_of(request), climb=climb, next=asked["next"])
        return Response(
            climb_answer(request, found(climbs_in(project.pk), pk=climb_id)), status=202
        )


class ClimbEvents(steering.Events, _Climb):
    @staticmethod
    def page(request: Request, work: Any) -> str:
        return page_url(request, "climb", work.project_id, work.pk)

    @following.documented
    def get(self, request: Request, project_id: int, climb_id: int) -> HttpResponseBase:
        """What it has told so far, or as it tells it."""
        return self.answered(request, project_id, climb_id)


def climb_answer(request: Request, climb: Climb) -> ClimbAnswer:
    where = (climb.project_id, climb.pk)
    rungs = list(climb.rungs.all())
    page = page_url(request, "climb", *where)
    return {
        "id": climb.pk,
        "url": api_url(request, "climb", *where),
        "html_url": page,
        "events_url": api_url(request, "climb_events", *where),
        "name": climb.name,
        "state": climb.state,
        "has_ended": climb.has_ended,
        "phase": climb.phase,
        "error": climb.error,
        "claim": claim(climb, rungs),
        "environment": parts.environment_ref(climb.environment_version),
        "rubric": parts.rubric_ref(climb.rubric_version),
        "model": parts.model_ref(climb.model),
        "settings": climb.config,
        "rungs": [rung_answer(rung, page) for rung in rungs],
        "created_at": climb.created_at,
        "started_at": climb.started_at,
        "ended_at": climb.ended_at,
    }


def rung_answer(rung: Rung, page: str) -> RungAnswer:
    return {
        "index": rung.index,
        "kind": rung.kind,
        "state": rung.state,
        "verdict": rung.verdict,
        "score": finite_or_none(rung.score),
        "interval": [finite_or_none(rung.score_low), finite_or_none(rung.score_high)],
        "n_scored": rung.n_scored,
        "n_errored": rung.n_errored,
        "rollouts_spent": rung.rollouts_spent,
        "tokens_spent": rung.tokens_spent,
        "cost_usd": rung.cost_usd,
        "progress": rung.progress,
        "doing": rung.doing,
        "sentence": rung.sentence,
        "certificate": rung.certificate,
        "html_url": page,
    }
