"""How far people and each criterion agree, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.db import transaction
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing, idempotency, review, work
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
from orchestrator.api.rubrics import version_of
from orchestrator.grading.policies import (
    MAX_MIN_LABELS,
    MAX_REASON,
    allow_criterion,
    bar_criterion,
    bar_of,
    policies_of,
    set_bar,
)
from orchestrator.grading.queries import rubrics_in
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.review.calibration import Calibration
from orchestrator.review.calibration_labels import LONGEST_NOTE, label
from orchestrator.review.calibration_queries import calibrations
from orchestrator.review.models import Annotation
from orchestrator.review.project_queries import queues_in
from orchestrator.review.unlabelled import MOST_ADDED, enqueue_unlabelled
from orchestrator.runs.queries import finite_or_none, rollouts_in
from rubrics.models import Rubric


class CalibratedAnswer(TypedDict):
    """One criterion and one judge."""

    criterion: str
    name: str
    judge: str
    n_labels: int
    n_pairs: Annotated[int, "Rollouts with a person's and the judge's word."]
    n_disagree: int
    n_held_out: int
    kappa: Annotated[float | None, "Cohen's; null where labels cannot tell."]
    kappa_interval: Annotated[
        list[float] | None, "95 %; counted only when one criterion is asked for."
    ]
    is_barred: Annotated[bool, "Nothing is learned from it."]
    reason: Annotated[str, "Why it is barred, or allowed again."]
    disagreements: Annotated[list[int], "Ids of rollouts, newest label first; at most 50."]


class CalibrationAnswer(TypedDict):
    rubric: Annotated[int, "Its id."]
    version: Annotated[int, "Its number."]
    html_url: str
    criteria: list[CalibratedAnswer]


class BarAnswer(TypedDict):
    kappa: Annotated[float, "From where on the project believes a criterion."]
    min_labels: int
    html_url: str


class PolicyAnswer(TypedDict):
    criterion: str
    is_barred: bool
    reason: str
    url: str
    html_url: str


class EnqueuedAnswer(TypedDict):
    queue: review.QueueAnswer
    added: int
    already: int
    refused: dict[str, int]
    html_url: str


class CalibrationQuery(serializers.Serializer[Any]):
    version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)
    criterion = serializers.CharField(max_length=64, required=False)


class BarChange(serializers.Serializer[Any]):
    kappa = serializers.FloatField(min_value=0, max_value=1)
    min_labels = serializers.IntegerField(min_value=2, max_value=MAX_MIN_LABELS)


class PolicyChange(serializers.Serializer[Any]):
    is_barred = serializers.BooleanField()
    reason = serializers.CharField(max_length=MAX_REASON)


class NewLabel(serializers.Serializer[Any]):
    rollout = work.id_field(help_text="Its id.")
    criterion = serializers.CharField(max_length=64)
    said = serializers.CharField(
        max_length=40, help_text="A value on the criterion's scale, or `na`."
    )
    note = serializers.CharField(max_length=LONGEST_NOTE, default="", allow_blank=True)
    version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)


class NewLabelling(serializers.Serializer[Any]):
    criterion = serializers.CharField(max_length=64)
    n = serializers.IntegerField(min_value=1, max_value=MOST_ADDED)
    queue = work.id_field(required=False, help_text="Its id; left out: a new one.")
    name = serializers.CharField(max_length=120, default="", allow_blank=True)
    version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)


class CalibrationDetail(Endpoint):
    area = "rubrics"

    @operation(CalibrationAnswer, query=CalibrationQuery)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Criterion by criterion, of the newest version or another."""
        project = project_for_view(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        asked = read(CalibrationQuery, request.query_params)
        version = version_of(rubric, asked.get("version"))
        only = asked.get("criterion", "")
        policies = policies_of(rubric_id)
        measured = calibrations(version.rubric, version, only=only)
        if only and not measured:
            raise ValidationError({"criterion": ["is none of this version"]})
        answer: CalibrationAnswer = {
            "rubric": rubric_id,
            "version": version.number,
            "html_url": page_url(request, "rubric_calibration", project.pk, rubric_id),
            "criteria": [
                _calibrated(each, policies.get(id), with_interval=bool(only))
                for id, judges in measured.items()
                for each in judges
            ],
        }
        return Response(answer)


class CalibrationBar(editing.Settings):
    area = "rubrics"
    body = BarChange
    writer = staticmethod(project_for_edit)

    @staticmethod
    def now(request: Request, project: Project) -> BarAnswer:
        bar = bar_of(project.pk)
        return {
            "kappa": bar.kappa,
            "min_labels": bar.min_labels,
            "html_url": page_url(request, "rubrics", project.pk),
        }

    @staticmethod
    def put_in_force(actor: User, project: Project, asked: Mapping[str, Any]) -> None:
        set_bar(actor=actor, project=project, **asked)

    @operation(BarAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """From where on the project believes a criterion."""
        return self.told(request, project_id)

    @operation(BarAnswer, body=BarChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets it. Editors."""
        return self.changed(request, project_id)


class CriterionPolicyDetail(Endpoint):
    area = "rubrics"

    @operation(PolicyAnswer)
    def get(self, request: Request, project_id: int, rubric_id: int, criterion: str) -> Response:
        """Whether anything may learn from a criterion."""
        project = project_for_view(request.user, project_id)
        return _policy(request, found(rubrics_in(project.pk), pk=rubric_id), criterion)

    @operation(PolicyAnswer, body=PolicyChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int, rubric_id: int, criterion: str) -> Response:
        """Bars it from being learned from, or takes that back; from the next run on. Editors."""
        project = project_for_edit(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        asked = read(PolicyChange, request.data)
        decide = bar_criterion if asked["is_barred"] else allow_criterion
        with transaction.atomic():
            editing.require_match(request, _policy_fields(rubric, criterion))
            decide(
                actor=actor_of(request),
                rubric=rubric,
                criterion=criterion,
                reason=asked["reason"],
            )
        return _policy(request, rubric, criterion)


class CalibrationLabels(Endpoint):
    area = "rubrics"

    @operation(
        review.MarkAnswer,
        body=NewLabel,
        parameters=[idempotency.PARAMETER],
        says="One's own mark, new or changed.",
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Says what one holds of a rollout, outside any queue. Editors."""
        project = project_for_edit(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        asked = read(NewLabel, request.data)
        version = version_of(rubric, asked.get("version"))
        rollout = chosen(rollouts_in(project.pk), "rollout", pk=asked["rollout"])

        def keep() -> Annotation:
            return label(
                actor=actor_of(request),
                rollout=rollout,
                version=version,
                criterion=asked["criterion"],
                said=asked["said"],
                note=asked["note"],
            )

        return made_once(
            request,
            keep,
            lambda mark: review.mark_answer(request, project.pk, mark),
            status=200,
        )


class CalibrationLabelling(Endpoint):
    area = "rubrics"

    @operation(
        EnqueuedAnswer,
        body=NewLabelling,
        parameters=[idempotency.PARAMETER],
        says="In the queue, waiting for people.",
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Puts rollouts that nobody has marked into a review queue. Editors."""
        project = project_for_edit(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        asked = read(NewLabelling, request.data)
        version = version_of(rubric, asked.get("version"))
        queue = None
        if "queue" in asked:
            queue = chosen(queues_in(project.pk), "queue", pk=asked["queue"])

        def enqueue() -> Response:
            done = enqueue_unlabelled(
                actor=actor_of(request),
                version=version,
                criterion=asked["criterion"],
                n=asked["n"],
                queue=queue,
                name=asked["name"],
            )
            fresh = found(queues_in(project.pk), pk=done.queue.pk)
            told = review.queue_answer(request, fresh)
            answer: EnqueuedAnswer = {
                "queue": told,
                "added": done.added.added,
                "already": done.added.already,
                "refused": dict(done.added.refused),
                "html_url": told["html_url"],
            }
            return Response(answer)

        return idempotency.once(request, enqueue)


def _calibrated(found: Calibration, policy: Any, *, with_interval: bool) -> CalibratedAnswer:
    disagreements = found.disagreements
    interval = found.agreement.kappa_interval if with_interval else None
    return {
        "criterion": found.criterion.id,
        "name": found.criterion.name,
        "judge": found.judge,
        "n_labels": found.n_labels,
        "n_pairs": found.n,
        "n_disagree": len(disagreements),
        "n_held_out": found.n_held_out,
        "kappa": finite_or_none(found.kappa),
        "kappa_interval": [interval.low, interval.high] if interval else None,
        "is_barred": bool(policy and policy.is_barred),
        "reason": policy.reason if policy else "",
        "disagreements": [pair.rollout for pair in disagreements[:50]],
    }


def _policy_fields(rubric: Rubric, criterion: str) -> dict[str, Any]:
    policy = policies_of(rubric.pk).get(criterion)
    return {
        "is_barred": bool(policy and policy.is_barred),
        "reason": policy.reason if policy else "",
    }


def _policy(request: Request, rubric: Rubric, criterion: str) -> Response:
    fields = _policy_fields(rubric, criterion)
    where = (rubric.project_id, rubric.pk)
    answer: PolicyAnswer = {
        "criterion": criterion,
        "is_barred": fields["is_barred"],
        "reason": fields["reason"],
        "url": api_url(request, "criterion_policy", *where, criterion),
        "html_url": page_url(request, "rubric_calibration", *where),
    }
    return editing.tagged(request, answer, fields)
