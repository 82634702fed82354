"""Past rollouts graded again by another version; what a run gave stays."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging, steering, work
from orchestrator.api.base import (
    actor_of,
    api_url,
    chosen,
    created,
    found,
    operation,
    page_url,
)
from orchestrator.api.errors import Conflict
from orchestrator.api.rubrics import OfRubric
from orchestrator.api.shapes import page_of
from orchestrator.environments.queries import environments_in
from orchestrator.grading.backtest import MAX_BACKTEST, start_backtest
from orchestrator.grading.models import Regrade, RegradedScore
from orchestrator.grading.queries import draft_of, regraded_scores, regrades_in
from orchestrator.grading.regrade import (
    OPEN_STATES,
    cancel_regrade,
    resume_regrade,
    retry_errors_of_run,
    start_regrade,
)
from orchestrator.grading.regrade_queries import n_done
from orchestrator.grading.selecting import BACKTEST_ROLLOUTS, MAX_ROLLOUTS, STATES, Selection
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.runs.queries import finite_or_none, runs_in


class RegradeAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    rubric: Annotated[int, "Its id."]
    version: Annotated[int | None, "Number of its version; null for a draft."]
    purpose: str
    chosen: Annotated[str, "Which rollouts, in words."]
    state: str
    has_ended: bool
    error: str
    n_total: int
    n_done: int
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class RegradedAnswer(TypedDict):
    rollout: int
    html_url: str
    state: str
    score: float | None
    reason: str
    verdicts: list[dict[str, Any]]


class NewRegrade(serializers.Serializer[Any]):
    rubric = work.id_field(help_text="Its id.")
    rubric_version = serializers.IntegerField(
        min_value=1, max_value=10**9, required=False, help_text="The newest if left out."
    )
    run = work.id_field(required=False, help_text="Only rollouts of it.")
    environment = serializers.SlugField(max_length=64, required=False)
    rollouts = serializers.ListField(
        child=work.id_field(), required=False, max_length=MAX_ROLLOUTS, help_text="These alone."
    )
    state = serializers.ChoiceField([state for state in STATES if state], required=False)
    without_test = serializers.BooleanField(
        default=False, help_text="Leave out the sealed test split."
    )
    keep_decided = serializers.BooleanField(
        default=False, help_text="Take what the run has decided by equal criteria."
    )


class NewBacktest(serializers.Serializer[Any]):
    run = work.id_field(required=False, help_text="Only rollouts of it.")
    environment = serializers.SlugField(max_length=64, required=False)
    rollouts = serializers.ListField(
        child=work.id_field(), required=False, max_length=MAX_ROLLOUTS, help_text="These alone."
    )
    state = serializers.ChoiceField([state for state in STATES if state], required=False)
    without_test = serializers.BooleanField(
        default=False, help_text="Leave out the sealed test split."
    )
    limit = serializers.IntegerField(
        min_value=1,
        max_value=MAX_BACKTEST,
        default=BACKTEST_ROLLOUTS,
        help_text="The newest so many; without a choice, of those that this rubric graded.",
    )


class _Regrade(steering.Steered):
    area = "rubrics"

    @staticmethod
    def work_in(project: Project) -> Any:
        return regrades_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return regrade_answer(request, work)


class Regrades(steering.Listing, _Regrade):
    list_page = "rubrics"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        version = work.rubric_version(project, asked["rubric"], asked.get("rubric_version"))
        selection = selection_of(project, asked)
        keep = "decided" if asked["keep_decided"] else ""
        return lambda: start_regrade(actor=actor, version=version, chosen=selection, keep=keep)

    @operation(page_of(RegradeAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The re-grades and back-tests of a project, newest first."""
        return self.listed(request, project_id)

    @operation(
        RegradeAnswer,
        body=NewRegrade,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Grades past rollouts by a version of a rubric. Editors."""
        return self.started(request, project_id, NewRegrade)


class Backtests(OfRubric, _Regrade):
    list_page = "rubric_backtests"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        rubric = asked["rubric"]
        draft = draft_of(rubric)
        if draft is None:
            raise Conflict("The rubric has no draft to test; begin one, or re-grade by a version.")
        selection = selection_of(project, asked)
        if not (selection.run_id or selection.environment_id or selection.rollout_ids):
            selection = replace(selection, rubric_id=rubric.pk)
        return lambda: start_backtest(
            actor=actor, draft=draft, chosen=selection, limit=asked["limit"]
        )

    @operation(page_of(RegradeAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """The re-grades and back-tests of one rubric, newest first."""
        return self.listed_of(request, project_id, rubric_id)

    @operation(
        RegradeAnswer,
        body=NewBacktest,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued.",
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Grades the newest of past rollouts by the draft as it is now. Editors."""
        return self.started(request, project_id, NewBacktest, rubric_id=rubric_id)


class RunRetry(_Regrade):
    @operation(
        RegradeAnswer, parameters=[idempotency.PARAMETER], status=202, says="Queued, as a re-grade."
    )
    def post(self, request: Request, project_id: int, run_id: int) -> Response:
        """Grades again what errored in a run, by its own version. Editors."""
        project = project_for_edit(request.user, project_id)
        run = found(runs_in(project.pk), pk=run_id)

        def start() -> Response:
            asked = retry_errors_of_run(actor=actor_of(request), run=run)
            answer = regrade_answer(request, found(regrades_in(project.pk), pk=asked.pk))
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, start)


class RegradeDetail(steering.Detail, _Regrade):
    @operation(RegradeAnswer)
    def get(self, request: Request, project_id: int, regrade_id: int) -> Response:
        """One re-grade."""
        return self.answered(request, project_id, regrade_id)


class RegradeAction(steering.Action, _Regrade):
    subject = "regrade"
    actions = {
        "cancel": cancel_regrade,
        "resume": resume_regrade,
        "retry": partial(resume_regrade, with_errors=True),
    }

    @operation(RegradeAnswer, status=202, says="Done, or under way.")
    def post(self, request: Request, project_id: int, regrade_id: int, action: str) -> Response:
        """Cancels it, goes on with what has no score, or retries what errored too. Editors."""
        return self.done(request, project_id, regrade_id, action)


class RegradeEvents(_Regrade):
    @following.documented
    def get(self, request: Request, project_id: int, regrade_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes."""
        project = project_for_view(request.user, project_id)
        regrade = found(regrades_in(project.pk).select_related("stream"), pk=regrade_id)
        return following.events_answer(
            request,
            regrade.stream,
            has_ended=regrade.state not in OPEN_STATES,
            html_url=page_url(request, "regrade", project.pk, regrade.pk),
        )


class RegradeScores(_Regrade):
    @operation(page_of(RegradedAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, regrade_id: int) -> Response:
        """The other scores, in the order they were given."""
        project = project_for_view(request.user, project_id)
        regrade = found(regrades_in(project.pk), pk=regrade_id)
        return Response(
            paging.paged(
                request,
                regraded_scores(regrade.pk),
                lambda rows: [regraded_answer(request, project.pk, row) for row in rows],
                html_url=page_url(request, "regrade", project.pk, regrade.pk),
                newest_first=False,
            )
        )


def selection_of(project: Project, asked: Mapping[str, Any]) -> Selection:
    """Raises ValidationError for what is not of the project."""
    environment_id = None
    if "environment" in asked:
        named = chosen(environments_in(project.pk), "environment", slug=asked["environment"])
        environment_id = named.pk
    if "run" in asked:
        chosen(runs_in(project.pk), "run", pk=asked["run"])
    return Selection(
        run_id=asked.get("run"),
        environment_id=environment_id,
        state=asked.get("state", ""),
        rollout_ids=tuple(asked.get("rollouts", ())),
        without_test=asked["without_test"],
    )


def regrade_answer(request: Request, regrade: Regrade) -> RegradeAnswer:
    where = (regrade.project_id, regrade.pk)
    return {
        "id": regrade.pk,
        "url": api_url(request, "regrade", *where),
        "html_url": page_url(request, "regrade", *where),
        "events_url": api_url(request, "regrade_events", *where),
        "rubric": regrade.rubric_id,
        "version": None if regrade.version is None else regrade.version.number,
        "purpose": regrade.purpose,
        "chosen": str(regrade.selection.get("text", "")),
        "state": regrade.state,
        "has_ended": regrade.state not in OPEN_STATES,
        "error": regrade.error,
        "n_total": regrade.n_total,
        "n_done": n_done(regrade),
        "created_at": regrade.created_at,
        "ended_at": regrade.ended_at,
    }


def regraded_answer(request: Request, project_id: int, row: RegradedScore) -> RegradedAnswer:
    return {
        "rollout": row.rollout_id,
        "html_url": page_url(request, "rollout", project_id, row.rollout_id),
        "state": row.state,
        "score": finite_or_none(row.score),
        "reason": row.reason,
        "verdicts": row.verdicts,
    }
