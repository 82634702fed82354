"""Caps besides those of the project's day: of its judges, of devices, and of what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing
from orchestrator.api.base import operation, page_url
from orchestrator.judging.budget import set_limits, spending_today
from orchestrator.projects.models import Project, User
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


class StorageLimits(editing.Settings):
    area = "project"
    body = StorageCapChange

    @staticmethod
    def now(request: Request, project: Project) -> StorageAnswer:
        now = storage_of(project.pk)
        return {
            "storage_bytes": now.cap,
            "used_bytes": now.total,
            "by_part": now.by_part,
            "html_url": page_url(request, "limits", project.pk),
        }

    @staticmethod
    def put_in_force(actor: User, project: Project, asked: Mapping[str, Any]) -> None:
        set_storage_cap(actor=actor, project_id=project.pk, **asked)

    @operation(StorageAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What the project may keep, and what it keeps."""
        return self.told(request, project_id)

    @operation(StorageAnswer, body=StorageCapChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets the cap. What is there stays; nothing more is taken in beyond it. Admins."""
        return self.changed(request, project_id)


class JudgeLimits(editing.Settings):
    area = "models"
    body = JudgeCapsChange

    @staticmethod
    def now(request: Request, project: Project) -> JudgeCapsAnswer:
        now = spending_today(project.pk)
        return {
            "usd_per_day": now.usd_cap,
            "tokens_per_day": now.tokens_cap,
            "usd_today": now.usd,
            "tokens_today": now.tokens,
            "html_url": page_url(request, "models", project.pk),
        }

    @staticmethod
    def put_in_force(actor: User, project: Project, asked: Mapping[str, Any]) -> None:
        set_limits(actor=actor, project=project, **asked)

    @operation(JudgeCapsAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What judges may take in a day (UTC), and what they have taken."""
        return self.told(request, project_id)

    @operation(JudgeCapsAnswer, body=JudgeCapsChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets both caps, for what is asked from now on. Admins."""
        return self.changed(request, project_id)


class TrainingLimits(editing.Settings):
    area = "trainings"
    body = DeviceCapsChange

    @staticmethod
    def now(request: Request, project: Project) -> DeviceCapsAnswer:
        quota = quota_of(project.pk)
        return {
            "max_running": None if quota is None else quota.max_running,
            "device_s_per_day": None if quota is None else quota.device_s_per_day,
            "html_url": page_url(request, "training", project.pk),
        }

    @staticmethod
    def put_in_force(actor: User, project: Project, asked: Mapping[str, Any]) -> None:
        set_quota(actor=actor, project=project, **asked)

    @operation(DeviceCapsAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What trainings may take of the devices."""
        return self.told(request, project_id)

    @operation(DeviceCapsAnswer, body=DeviceCapsChange, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets both caps; jobs that run go on. Admins."""
        return self.changed(request, project_id)
