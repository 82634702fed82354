"""Caps besides those of the project's day: of its judges, of devices, and of what it keeps."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing
from orchestrator.api.base import Endpoint, actor_of, operation, page_url, read
from orchestrator.judging.budget import set_limits, spending_today
from orchestrator.projects.access import project_for_admin, project_for_view
from orchestrator.projects.storage import set_storage_cap, storage_of
from orchestrator.trainings.queries import quota_of
from orchestrator.trainings.services import set_quota

_BIGGEST = 2**31 - 1


class JudgeCapsAnswer(TypedDict):
    usd_per_day: Annotated[float | None, "Null: no cap."]
    tokens_per_day: Annotated[int | None, "Null: no cap."]
    usd_today: float
    tokens_today: int
    html_url: str


class DeviceCapsAnswer(TypedDict):
    max_running: Annotated[int | None, "Training jobs at a time; null: fair share alone decides."]
    device_s_per_day: Annotated[int | None, "Seconds on devices within 24 hours; null: no cap."]
    html_url: str


class JudgeCapsChange(serializers.Serializer[Any]):
    usd_per_day = serializers.FloatField(min_value=0, max_value=1e9, allow_null=True)
    tokens_per_day = serializers.IntegerField(min_value=0, max_value=10**15, allow_null=True)


class DeviceCapsChange(serializers.Serializer[Any]):
    max_running = serializers.IntegerField(min_value=0, max_value=32_767, allow_null=True)
    device_s_per_day = serializers.IntegerField(min_value=0, max_value=_BIGGEST, allow_null=True)


class StorageAnswer(TypedDict):
    storage_bytes: Annotated[int | None, "Null: no cap."]
    used_bytes: Annotated[int, "As last measured; at most minutes ago."]
    by_part: Annotated[dict[str, int], "Bytes of events, tokens, judges, traces and so on."]
    html_url: str


class StorageCapChange(serializers.Serializer[Any]):
    storage_bytes = serializers.IntegerField(min_value=0, max_value=10**15, allow_null=True)


class StorageLimits(Endpoint):
    area = "project"

    @operation(StorageAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What the project may keep, and what it keeps."""
        project = project_for_view(request.user, project_id)
        return _storage(request, project.pk)

    @operation(StorageAnswer, body=StorageCapChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets the cap. What is there stays; nothing more is taken in beyond it. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(StorageCapChange, request.data)
        with transaction.atomic():
            cap = storage_of(project.pk).cap
            editing.require_match(request, {"storage_bytes": cap})
            set_storage_cap(actor=actor_of(request), project_id=project.pk, **asked)
        return _storage(request, project.pk)


class JudgeLimits(Endpoint):
    area = "models"

    @operation(JudgeCapsAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What judges may take in a day (UTC), and what they have taken."""
        project = project_for_view(request.user, project_id)
        return _judges(request, project.pk)

    @operation(JudgeCapsAnswer, body=JudgeCapsChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets both caps, for what is asked from now on. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(JudgeCapsChange, request.data)
        with transaction.atomic():
            editing.require_match(request, _judge_caps(project.pk))
            set_limits(actor=actor_of(request), project=project, **asked)
        return _judges(request, project.pk)


class TrainingLimits(Endpoint):
    area = "trainings"

    @operation(DeviceCapsAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What trainings may take of the devices."""
        project = project_for_view(request.user, project_id)
        return _devices(request, project.pk)

    @operation(DeviceCapsAnswer, body=DeviceCapsChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets both caps; jobs that run go on. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(DeviceCapsChange, request.data)
        with transaction.atomic():
            editing.require_match(request, _device_caps(project.pk))
            set_quota(actor=actor_of(request), project=project, **asked)
        return _devices(request, project.pk)


def _storage(request: Request, project_id: int) -> Response:
    now = storage_of(project_id)
    answer: StorageAnswer = {
        "storage_bytes": now.cap,
        "used_bytes": now.total,
        "by_part": now.by_part,
        "html_url": page_url(request, "limits", project_id),
    }
    return editing.tagged(request, answer, {"storage_bytes": now.cap})


def _judge_caps(project_id: int) -> dict[str, Any]:
    now = spending_today(project_id)
    return {"usd_per_day": now.usd_cap, "tokens_per_day": now.tokens_cap}


def _judges(request: Request, project_id: int) -> Response:
    now = spending_today(project_id)
    answer: JudgeCapsAnswer = {
        "usd_per_day": now.usd_cap,
        "tokens_per_day": now.tokens_cap,
        "usd_today": now.usd,
        "tokens_today": now.tokens,
        "html_url": page_url(request, "models", project_id),
    }
    return editing.tagged(request, answer, _judge_caps(project_id))


def _device_caps(project_id: int) -> dict[str, Any]:
    quota = quota_of(project_id)
    return {
        "max_running": None if quota is None else quota.max_running,
        "device_s_per_day": None if quota is None else quota.device_s_per_day,
    }


def _devices(request: Request, project_id: int) -> Response:
    caps = _device_caps(project_id)
    answer: DeviceCapsAnswer = {
        "max_running": caps["max_running"],
        "device_s_per_day": caps["device_s_per_day"],
        "html_url": page_url(request, "training", project_id),
    }
    return editing.tagged(request, answer, caps)
