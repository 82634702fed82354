"""Rules of retention, and looks at what they let go."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.db import transaction
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging
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
from orchestrator.keeping.models import RetentionRule, RetentionRun, What
from orchestrator.keeping.queries import looks_of, marked, rules_of
from orchestrator.keeping.retention import services
from orchestrator.projects.access import project_for_admin, project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.runs.models import Purpose


class RuleAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    what: str
    days: Annotated[int, "Since it ended."]
    grace_days: Annotated[int, "Between being marked and going."]
    purposes: Annotated[list[str], "Of runs; empty: all."]
    changed_by: str
    changed_at: datetime.datetime


class RetentionLookAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    is_dry: bool
    state: str
    has_ended: bool
    found: Annotated[
        list[Any],
        "For each rule: due, due_bytes, examples, protected by reason, marked, removed.",
    ]
    error: str
    asked_by: Annotated[str, "Empty: the daily look."]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class MarkedAnswer(TypedDict):
    n: Annotated[int, "Things that wait for the end of their grace."]
    first_at: Annotated[datetime.datetime | None, "When the first of them goes."]
    kept: Annotated[int, "Things that people have kept by hand."]
    html_url: str


class NewRule(serializers.Serializer[Any]):
    days = serializers.IntegerField(min_value=1, max_value=services.MAX_DAYS)
    grace_days = serializers.IntegerField(min_value=0, max_value=services.MAX_DAYS, default=7)
    purposes = serializers.ListField(
        child=serializers.ChoiceField(Purpose.choices), default=list, max_length=10
    )


class NewLook(serializers.Serializer[Any]):
    is_dry = serializers.BooleanField(
        default=True, help_text="False marks what is due and removes what was marked long enough."
    )


class Rules(Endpoint):
    area = "project"

    @operation(page_of(RuleAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """What of a project goes by itself. Without a rule nothing does."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                rules_of(project),
                lambda rows: [rule_answer(request, row) for row in rows],
                html_url=page_url(request, "retention", project.pk),
                newest_first=False,
            )
        )


class RuleDetail(Endpoint):
    area = "project"

    @operation(RuleAnswer)
    def get(self, request: Request, project_id: int, kept: str) -> Response:
        """The rule of a kind: traces, runs, checkpoints, judge_calls, deliveries or archives."""
        project = project_for_view(request.user, project_id)
        return Response(rule_answer(request, found(rules_of(project), what=kept)))

    @operation(RuleAnswer, body=NewRule)
    def put(self, request: Request, project_id: int, kept: str) -> Response:
        """Makes or changes it. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(NewRule, request.data)
        rule = services.set_rule(actor=actor_of(request), project=project, what=kept, **asked)
        return Response(rule_answer(request, rule))

    @operation(None, status=204, says="Nothing of the kind goes any more.")
    def delete(self, request: Request, project_id: int, kept: str) -> Response:
        """Takes it away. Admins."""
        project = project_for_admin(request.user, project_id)
        services.remove_rule(actor=actor_of(request), rule=found(rules_of(project), what=kept))
        return Response(status=204)


class Looks(Endpoint):
    area = "project"

    @operation(page_of(RetentionLookAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The looks at what is due, newest first."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                looks_of(project),
                lambda rows: [look_answer(request, row) for row in rows],
                html_url=page_url(request, "retention", project.pk),
            )
        )

    @operation(
        RetentionLookAnswer,
        body=NewLook,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Has the rules looked at, without a change unless it is asked for. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(NewLook, request.data)

        def start() -> Response:
            run = services.start_look(
                actor=actor_of(request), project=project, is_dry=asked["is_dry"]
            )
            answer = look_answer(request, run)
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, start)


class LookDetail(Endpoint):
    area = "project"

    @operation(RetentionLookAnswer)
    def get(self, request: Request, project_id: int, look_id: int) -> Response:
        """One look, with what it found."""
        project = project_for_view(request.user, project_id)
        return Response(look_answer(request, found(looks_of(project), pk=look_id)))


class LookEvents(Endpoint):
    area = "project"

    @following.documented
    def get(self, request: Request, project_id: int, look_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes."""
        project = project_for_view(request.user, project_id)

        def look() -> Mapping[str, Any]:
            return look_answer(request, found(looks_of(project), pk=look_id))

        return following.states_answer(request, look)


class Marked(Endpoint):
    area = "project"

    @operation(MarkedAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What goes when its days of grace are over, and what was kept by hand."""
        return self._told(request, project_for_view(request.user, project_id))

    @operation(MarkedAnswer, says="What was marked stays, whatever the rules say.")
    def post(self, request: Request, project_id: int) -> Response:
        """Keeps everything that is marked. Editors."""
        project = project_for_edit(request.user, project_id)
        services.keep(actor=actor_of(request), project=project)
        return self._told(request, project)

    @operation(MarkedAnswer, says="What was kept by hand is for the rules again.")
    def delete(self, request: Request, project_id: int) -> Response:
        """Takes back all keeping by hand. Admins."""
        project = project_for_admin(request.user, project_id)
        with transaction.atomic():
            services.let_go(actor=actor_of(request), project=project)
        return self._told(request, project)

    @staticmethod
    def _told(request: Request, project: Project) -> Response:
        now = marked(project)
        answer: MarkedAnswer = {
            "n": now["n"],
            "first_at": now["first_at"],
            "kept": now["kept"],
            "html_url": page_url(request, "retention", project.pk),
        }
        return Response(answer)


def rule_answer(request: Request, rule: RetentionRule) -> RuleAnswer:
    return {
        "id": rule.pk,
        "url": api_url(request, "retention_rule", rule.project_id, What(rule.what).value),
        "html_url": page_url(request, "retention", rule.project_id),
        "what": rule.what,
        "days": rule.days,
        "grace_days": rule.grace_days,
        "purposes": rule.purposes,
        "changed_by": rule.changed_by.get_username() if rule.changed_by else "",
        "changed_at": rule.changed_at,
    }


def look_answer(request: Request, run: RetentionRun) -> RetentionLookAnswer:
    where = (run.project_id, run.pk)
    return {
        "id": run.pk,
        "url": api_url(request, "retention_look", *where),
        "html_url": page_url(request, "retention", run.project_id),
        "events_url": api_url(request, "retention_look_events", *where),
        "is_dry": run.is_dry,
        "state": run.state,
        "has_ended": run.has_ended,
        "found": run.found,
        "error": run.error,
        "asked_by": run.asked_by.get_username() if run.asked_by else "",
        "created_at": run.created_at,
        "ended_at": run.ended_at,
    }
