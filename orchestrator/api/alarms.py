"""What climbs and trainings warn of, and who has seen it."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import paging
from orchestrator.api.base import Endpoint, actor_of, found, operation, page_url
from orchestrator.api.shapes import page_of
from orchestrator.climbs.queries import climbs_in
from orchestrator.grading.hacking import acknowledge
from orchestrator.grading.models import HackingAlarm
from orchestrator.grading.queries import hacking_alarms
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.runs.queries import finite_or_none
from orchestrator.trainings.project_queries import training_alarms, trainings_in
from orchestrator.trainings.services import acknowledge_alarm
from training.models import TrainingAlarm


class AlarmAnswer(TypedDict):
    id: int
    html_url: str
    signal: str
    level: Annotated[str, "warn, or pause: the work waits for a person."]
    value: float | None
    text: str
    detail: dict[str, Any]
    created_at: datetime.datetime
    acknowledged_by: str | None
    acknowledged_at: datetime.datetime | None


class ClimbAlarms(Endpoint):
    area = "climbs"

    @operation(page_of(AlarmAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, climb_id: int) -> Response:
        """Signs that the rubric is gamed, newest first."""
        climb = found(climbs_in(project_for_view(request.user, project_id).pk), pk=climb_id)
        page = page_url(request, "climb", project_id, climb_id)
        return Response(
            paging.paged(
                request,
                hacking_alarms(climb.pk),
                lambda rows: [_of_climb(row, page) for row in rows],
                html_url=page,
            )
        )


class ClimbAlarmSeen(Endpoint):
    area = "climbs"

    @operation(AlarmAnswer, says="It comes back only if it grows.")
    def post(self, request: Request, project_id: int, climb_id: int, alarm_id: int) -> Response:
        """Says that a person has looked; safe to send twice. Editors."""
        climb = found(climbs_in(project_for_edit(request.user, project_id).pk), pk=climb_id)
        alarms = hacking_alarms(climb.pk)
        acknowledge(actor=actor_of(request), alarm=found(alarms, pk=alarm_id))
        page = page_url(request, "climb", project_id, climb_id)
        return Response(_of_climb(found(alarms, pk=alarm_id), page))


class TrainingAlarms(Endpoint):
    area = "trainings"

    @operation(page_of(AlarmAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, job_id: int) -> Response:
        """Signs that the training goes wrong, newest first."""
        job = found(trainings_in(project_for_view(request.user, project_id).pk), pk=job_id)
        page = page_url(request, "training_job", project_id, job_id)
        return Response(
            paging.paged(
                request,
                training_alarms(job.pk),
                lambda rows: [_of_training(row, page) for row in rows],
                html_url=page,
            )
        )


class TrainingAlarmSeen(Endpoint):
    area = "trainings"

    @operation(AlarmAnswer, says="It comes back after some steps if it is still so.")
    def post(self, request: Request, project_id: int, job_id: int, alarm_id: int) -> Response:
        """Says that a person has looked; safe to send twice. Editors."""
        job = found(trainings_in(project_for_edit(request.user, project_id).pk), pk=job_id)
        alarms = training_alarms(job.pk)
        acknowledge_alarm(actor=actor_of(request), alarm=found(alarms, pk=alarm_id))
        page = page_url(request, "training_job", project_id, job_id)
        return Response(_of_training(found(alarms, pk=alarm_id), page))


def _of_climb(alarm: HackingAlarm, page: str) -> AlarmAnswer:
    return _answer(alarm, page, str(alarm.detail.get("sentence", "")), alarm.detail)


def _of_training(alarm: TrainingAlarm, page: str) -> AlarmAnswer:
    detail = {"step": alarm.step, "before": finite_or_none(alarm.before)}
    return _answer(alarm, page, alarm.sentence, detail)


def _answer(alarm: Any, page: str, text: str, detail: dict[str, Any]) -> AlarmAnswer:
    seen_by = alarm.acknowledged_by
    return {
        "id": alarm.pk,
        "html_url": page,
        "signal": alarm.signal,
        "level": alarm.level,
        "value": finite_or_none(alarm.value),
        "text": text,
        "detail": detail,
        "created_at": alarm.created_at,
        "acknowledged_by": seen_by.get_username() if seen_by else None,
        "acknowledged_at": alarm.acknowledged_at,
    }
