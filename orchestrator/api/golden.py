"""Golden cases of a rubric: transcripts whose verdict everybody agrees on."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import idempotency, paging, work
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    chosen,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.making import made_once
from orchestrator.api.shapes import page_of
from orchestrator.grading.golden import (
    MAX_NAME,
    GoldenResult,
    add_from_rollout,
    add_typed,
    cases_of,
    remove_case,
    run_golden,
)
from orchestrator.grading.models import GoldenCase, GoldenExpectation
from orchestrator.grading.queries import golden_in, rubrics_in
from orchestrator.grading.writing import writing_of
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.runs.models import Rollout
from orchestrator.runs.queries import finite_or_none, rollouts_to_read


class GoldenAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    name: str
    expect: Annotated[str, "pass or fail."]
    criterion: Annotated[str, "What it is about; empty: the rollout's score."]
    rollout: Annotated[int | None, "That it is a copy of, while that is there."]
    transcript: dict[str, Any]
    created_at: datetime.datetime


class GoldenHeld(TypedDict):
    id: int
    name: str
    expect: str
    criterion: str
    holds: Annotated[bool | None, "Null: cannot be told; `why` says so."]
    value: float | None
    why: str


class GoldenReportAnswer(TypedDict):
    of: Annotated[str, "`draft`, or the version that was tried; empty without either."]
    n_held: int
    n_failed: int
    n_untold: int
    cases: list[GoldenHeld]
    html_url: str


class NewGolden(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME)
    expect = serializers.ChoiceField(GoldenExpectation.choices)
    criterion = serializers.CharField(
        max_length=64, default="", allow_blank=True, help_text="Its id; empty: the score."
    )
    rollout = work.id_field(required=False, help_text="To copy; or `transcript`.")
    transcript = serializers.DictField(
        required=False, help_text="{steps: [{command, output …}], answer, expected, reward, task}"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("rollout" in attrs) == ("transcript" in attrs):
            raise serializers.ValidationError("accepts exactly one of rollout, transcript")
        return attrs


class GoldenTry(serializers.Serializer[Any]):
    with_judges = serializers.BooleanField(
        default=False, help_text="Ask models too, which costs what they cost."
    )


class GoldenCases(Endpoint):
    area = "rubrics"

    @operation(page_of(GoldenAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """The golden cases of a rubric, in the order they were added."""
        project = project_for_view(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        return Response(
            paging.paged(
                request,
                golden_in(project.pk).filter(rubric=rubric),
                lambda rows: [golden_answer(request, row) for row in rows],
                html_url=page_url(request, "rubric_golden", project.pk, rubric.pk),
                newest_first=False,
            )
        )

    @operation(
        GoldenAnswer, body=NewGolden, parameters=[idempotency.PARAMETER], status=201, says="Kept."
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Keeps a case: a copy of a rollout, or of what is sent. Editors."""
        project = project_for_edit(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        asked = read(NewGolden, request.data)
        common: dict[str, Any] = {
            "actor": actor_of(request),
            "rubric": rubric,
            **{name: asked[name] for name in ("name", "expect", "criterion")},
        }
        rollout: Rollout | None = None
        if "rollout" in asked:
            rollout = chosen(rollouts_to_read(project.pk), "rollout", pk=asked["rollout"])

        def keep() -> GoldenCase:
            if rollout is not None:
                return add_from_rollout(rollout=rollout, **common)
            return add_typed(transcript=asked["transcript"], **common)

        return made_once(request, keep, lambda case: golden_answer(request, case))


class GoldenDetail(Endpoint):
    area = "rubrics"

    @operation(GoldenAnswer)
    def get(self, request: Request, project_id: int, case_id: int) -> Response:
        """One case."""
        project = project_for_view(request.user, project_id)
        return Response(golden_answer(request, found(golden_in(project.pk), pk=case_id)))

    @operation(None, status=204, says="Removed.")
    def delete(self, request: Request, project_id: int, case_id: int) -> Response:
        """Removes it. Editors."""
        project = project_for_edit(request.user, project_id)
        remove_case(actor=actor_of(request), case=found(golden_in(project.pk), pk=case_id))
        return Response(status=204)


class GoldenTrial(Endpoint):
    area = "rubrics"

    @operation(GoldenReportAnswer, body=GoldenTry, says="Case by case.")
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Tries all cases on the draft, without one on the newest version. Editors.

        Takes as long as grading takes, at most two minutes; changes nothing.
        """
        project = project_for_edit(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        asked = read(GoldenTry, request.data)
        writing = writing_of(rubric)
        report = run_golden(
            project.pk, writing.spec or {}, cases_of(rubric), with_judges=asked["with_judges"]
        )
        answer: GoldenReportAnswer = {
            "of": writing.title,
            "n_held": report.n_held,
            "n_failed": len(report.failed),
            "n_untold": report.n_untold,
            "cases": [_held(result) for result in report.results],
            "html_url": page_url(request, "rubric_golden", project.pk, rubric.pk),
        }
        return Response(answer)


def golden_answer(request: Request, case: GoldenCase) -> GoldenAnswer:
    project_id = case.rubric.project_id
    return {
        "id": case.pk,
        "url": api_url(request, "golden_case", project_id, case.pk),
        "html_url": page_url(request, "rubric_golden", project_id, case.rubric_id),
        "name": case.name,
        "expect": case.expect,
        "criterion": case.criterion,
        "rollout": case.rollout_id,
        "transcript": case.transcript,
        "created_at": case.created_at,
    }


def _held(result: GoldenResult) -> GoldenHeld:
    case = result.case
    return {
        "id": case.pk,
        "name": case.name,
        "expect": case.expect,
        "criterion": case.criterion,
        "holds": result.holds,
        "value": finite_or_none(result.value),
        "why": result.why,
    }
