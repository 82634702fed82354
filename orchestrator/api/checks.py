"""Whether an environment does what an environment must."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging, steering
from orchestrator.api.base import Endpoint, actor_of, api_url, created, found, operation, page_url
from orchestrator.api.shapes import page_of
from orchestrator.environments.conformance.queries import checks_in
from orchestrator.environments.conformance.services import (
    OPEN_STATES,
    cancel_check,
    check_environment,
)
from orchestrator.environments.models import EnvironmentCheck
from orchestrator.environments.queries import versions_in
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project


class FindingAnswer(TypedDict):
    id: str
    status: Annotated[str, "pass, warn, fail, skip or error."]
    evidence: str
    remediation: str


class CheckAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    version: int
    state: str
    has_ended: bool
    error: str
    n_total: int
    results: list[FindingAnswer]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class _Check(steering.Steered):
    area = "environments"

    @staticmethod
    def work_in(project: Project) -> Any:
        return checks_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return check_answer(request, work)


class EnvironmentChecks(Endpoint):
    area = "environments"

    @operation(page_of(CheckAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """The checks of a version, newest first."""
        project = project_for_view(request.user, project_id)
        version = found(versions_in(project.pk), environment__slug=slug, number=number)
        return Response(
            paging.paged(
                request,
                checks_in(project.pk).filter(version=version),
                lambda rows: [check_answer(request, row) for row in rows],
                html_url=page_url(request, "environment_checks", project.pk, slug),
            )
        )

    @operation(
        CheckAnswer,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """Checks that the environment does what an environment must. Editors."""
        project = project_for_edit(request.user, project_id)
        version = found(versions_in(project.pk), environment__slug=slug, number=number)

        def start() -> Response:
            check = check_environment(actor=actor_of(request), version=version)
            answer = check_answer(request, check)
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, start)


class EnvironmentCheckDetail(steering.Detail, _Check):
    @operation(CheckAnswer)
    def get(self, request: Request, project_id: int, check_id: int) -> Response:
        """One check with what it has found so far."""
        return self.answered(request, project_id, check_id)


class EnvironmentCheckEvents(steering.States, _Check):
    @following.documented
    def get(self, request: Request, project_id: int, check_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes."""
        return self.answered(request, project_id, check_id)


class EnvironmentCheckAction(steering.Action, _Check):
    subject = "check"
    actions = {"cancel": cancel_check}

    @operation(CheckAnswer, status=202, says="Asked to end; what was found stays.")
    def post(self, request: Request, project_id: int, check_id: int, action: str) -> Response:
        """Ends a check; one that has ended stays as it is. Editors."""
        return self.done(request, project_id, check_id, action)


def check_answer(request: Request, check: EnvironmentCheck) -> CheckAnswer:
    version = check.version
    project_id, slug = version.environment.project_id, version.environment.slug
    return {
        "id": check.pk,
        "url": api_url(request, "environment_check", project_id, check.pk),
        "html_url": page_url(request, "environment_checks", project_id, slug),
        "events_url": api_url(request, "environment_check_events", project_id, check.pk),
        "version": version.number,
        "state": check.state,
        "has_ended": check.state not in OPEN_STATES,
        "error": check.error,
        "n_total": check.n_total,
        "results": [
            {
                "id": result.check_id,
                "status": result.status,
                "evidence": result.evidence,
                "remediation": result.remediation,
            }
            for result in check.results.all()
        ],
        "created_at": check.created_at,
        "ended_at": check.ended_at,
    }
