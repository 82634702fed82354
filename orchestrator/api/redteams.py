"""Attacks on rubrics: what gets paid without being good."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, golden, idempotency, paging, steering
from orchestrator.api.base import actor_of, api_url, found, operation, page_url, read
from orchestrator.api.making import made_once
from orchestrator.api.rubrics import OfRubric, version_of
from orchestrator.api.shapes import page_of
from orchestrator.grading.models import RedTeamReport
from orchestrator.grading.queries import draft_of
from orchestrator.grading.redteam import services
from orchestrator.grading.redteam.queries import attacks_in
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.runs.queries import finite_or_none
from rubrics.models import RubricVersion


class AttackResult(TypedDict):
    """One attack on one rollout."""

    number: Annotated[int, "Of the result, to make a golden case of it."]
    attack: str
    rollout: int | None
    state: str
    score: float | None
    paid: Annotated[bool, "Whether the rubric gave what it should not have given."]
    reason: str


class AttackAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    rubric: Annotated[int, "Its id."]
    version: Annotated[int | None, "Its number; null for a draft."]
    state: str
    has_ended: bool
    error: str
    n_done: int
    n_total: int
    n_paid: int
    cost_usd: float
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class AttackDetailAnswer(AttackAnswer):
    results: list[AttackResult]
    numbers: Annotated[dict[str, Any], "By family of attacks, and how pairs were ordered."]


class NewAttack(serializers.Serializer[Any]):
    version = serializers.IntegerField(
        min_value=1,
        max_value=10**9,
        required=False,
        allow_null=True,
        help_text="Number of the version to attack; the newest if left out.",
    )
    draft = serializers.BooleanField(default=False, help_text="Attack the draft instead.")
    n_bases = serializers.IntegerField(
        min_value=2,
        max_value=services.MAX_BASES,
        default=services.DEFAULT_BASES,
        help_text="Rollouts that attacks start from.",
    )
    cap_usd = serializers.FloatField(
        min_value=0,
        max_value=services.MAX_CAP_USD,
        default=services.DEFAULT_CAP_USD,
        help_text="What judges may cost.",
    )


class AttackToKeep(serializers.Serializer[Any]):
    number = serializers.IntegerField(min_value=0, max_value=10**6, help_text="Of the result.")


class _Attack(steering.Steered):
    area = "rubrics"

    @staticmethod
    def work_in(project: Project) -> Any:
        return attacks_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return attack_answer(request, work)


class Attacks(OfRubric, _Attack):
    list_page = "rubric_redteam"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        rubric = asked["rubric"]
        version: RubricVersion | None = None
        if asked["draft"]:
            draft = draft_of(rubric)
            if draft is None:
                raise ValidationError({"draft": ["there is none; attack a version"]})
            spec = draft.spec
        else:
            version = version_of(rubric, asked.get("version"))
            spec = version.spec
        return lambda: services.attack_rubric(
            actor=actor,
            rubric=rubric,
            spec=spec,
            version=version,
            n_bases=asked["n_bases"],
            cap_usd=asked["cap_usd"],
        )

    @operation(page_of(AttackAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """The attacks on a rubric, newest first."""
        return self.listed_of(request, project_id, rubric_id)

    @operation(
        AttackAnswer,
        body=NewAttack,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Attacks a version or the draft. Editors."""
        return self.started(request, project_id, NewAttack, rubric_id=rubric_id)


class AttackDetail(_Attack):
    @operation(AttackDetailAnswer)
    def get(self, request: Request, project_id: int, report_id: int) -> Response:
        """One attack with what it got paid."""
        project = project_for_view(request.user, project_id)
        report = found(attacks_in(project.pk), pk=report_id)
        numbers: Any = report.summary.get("numbers") or {}
        answer: AttackDetailAnswer = {
            **attack_answer(request, report),
            "results": [_result(report, number) for number in range(len(report.results))],
            "numbers": numbers,
        }
        return Response(answer)


class AttackEvents(steering.States, _Attack):
    @following.documented
    def get(self, request: Request, project_id: int, report_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes."""
        return self.answered(request, project_id, report_id)


class AttackAction(steering.Action, _Attack):
    subject = "report"
    actions = {"cancel": services.cancel_attack}

    @operation(AttackAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, report_id: int, action: str) -> Response:
        """Cancels it; what it found stays. Editors."""
        return self.done(request, project_id, report_id, action)


class AttackGolden(_Attack):
    @operation(
        golden.GoldenAnswer,
        body=AttackToKeep,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="It must fail from now on.",
    )
    def post(self, request: Request, project_id: int, report_id: int) -> Response:
        """Makes a golden case of a result. Editors."""
        project = project_for_edit(request.user, project_id)
        report = found(attacks_in(project.pk), pk=report_id)
        number = read(AttackToKeep, request.data)["number"]
        return made_once(
            request,
            lambda: services.make_golden_case(
                actor=actor_of(request), report=report, number=number
            ),
            lambda case: golden.golden_answer(request, case),
        )


def attack_answer(request: Request, report: RedTeamReport) -> AttackAnswer:
    project_id = report.rubric.project_id
    page = page_url(request, "rubric_redteam", project_id, report.rubric_id)
    summary = report.summary
    return {
        "id": report.pk,
        "url": api_url(request, "attack", project_id, report.pk),
        "html_url": f"{page}?report={report.pk}",
        "events_url": api_url(request, "attack_events", project_id, report.pk),
        "rubric": report.rubric_id,
        "version": None if report.version is None else report.version.number,
        "state": report.state,
        "has_ended": report.state not in services.OPEN_STATES,
        "error": report.error,
        "n_done": int(summary.get("n_done", 0)),
        "n_total": int(summary.get("n_total", 0)),
        "n_paid": sum(bool(result["paid"]) for result in report.results),
        "cost_usd": float((summary.get("spent") or {}).get("cost_usd", 0.0)),
        "created_at": report.created_at,
        "ended_at": report.ended_at,
    }


def _result(report: RedTeamReport, number: int) -> AttackResult:
    result = report.results[number]
    bases = report.summary.get("bases", [])
    base = bases[result["base"]] if result["base"] < len(bases) else {}
    return {
        "number": number,
        "attack": result["attack"],
        "rollout": base.get("rollout"),
        "state": result["state"],
        "score": finite_or_none(result["score"]),
        "paid": bool(result["paid"]),
        "reason": str(result.get("reason", "")),
    }
