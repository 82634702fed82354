"""Harnesses: everything around a model that changes without its weights, by content."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, TypedDict

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from orchestrator.api import editing, idempotency, paging, work
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
from orchestrator.harnesses.queries import contents_of, harness_versions_in
from orchestrator.harnesses.services import add_harness, rename_harness
from orchestrator.harnesses.uploads import harness_of_zip
from orchestrator.projects.access import project_for_edit, project_for_view

MOST_ZIP = 12 * 2**20
"""Characters of base64."""


class HarnessRow(TypedDict):
    id: int
    url: str
    html_url: str
    sha256: Annotated[str, "Of its content: equal harnesses have equal ones."]
    label: str
    files: Annotated[list[str], "Paths of its texts."]
    created_at: datetime.datetime


class HarnessAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    sha256: Annotated[str, "Of its content: equal harnesses have equal ones."]
    label: str
    files: Annotated[dict[str, str], "Texts by path, in their canonical form."]
    created_at: datetime.datetime


class NewHarness(serializers.Serializer[Any]):
    files = serializers.DictField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=2**20),
        required=False,
        help_text="Texts by path: harness.yaml, instructions.md, skills/<name>/SKILL.md …",
    )
    zip = serializers.CharField(
        max_length=MOST_ZIP, required=False, help_text="Or a zip file of its folder, in base64."
    )
    label = work.label_field(default="", allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("files" in attrs) == ("zip" in attrs):
            raise serializers.ValidationError("accepts exactly one of files, zip")
        return attrs


class HarnessLabel(serializers.Serializer[Any]):
    label = work.label_field(allow_blank=True)


class Harnesses(Endpoint):
    area = "harnesses"

    @operation(page_of(HarnessRow), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The harnesses of a project, newest first, without their texts."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                harness_versions_in(project.pk),
                lambda rows: [harness_row(request, row) for row in rows],
                html_url=page_url(request, "harnesses", project.pk),
            )
        )

    @operation(
        HarnessAnswer,
        body=NewHarness,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="Kept; one with equal texts is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Keeps a harness under its content's address. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewHarness, request.data)
        if "zip" in asked:
            harness = harness_of_zip(work.bytes_of(asked["zip"], "zip"))
        else:
            harness = Harness.from_components(asked["files"])

        def keep() -> Response:
            stored = add_harness(
                actor=actor_of(request), project=project, harness=harness, label=asked["label"]
            )
            answer = harness_answer(request, stored.version)
            return created(request, answer, answer["url"])

        return idempotency.once(request, keep)


class HarnessDetail(Endpoint):
    area = "harnesses"

    @operation(HarnessAnswer)
    def get(self, request: Request, project_id: int, harness_id: int) -> Response:
        """One harness with its texts."""
        project = project_for_view(request.user, project_id)
        version = found(harness_versions_in(project.pk), pk=harness_id)
        answer = harness_answer(request, version)
        return editing.tagged(request, answer, {"label": version.label})

    @operation(HarnessAnswer, body=HarnessLabel, parameters=[editing.PARAMETER])
    def patch(self, request: Request, project_id: int, harness_id: int) -> Response:
        """Gives it another label; its content never changes. Editors."""
        project = project_for_edit(request.user, project_id)
        with transaction.atomic():
            versions = harness_versions_in(project.pk).select_for_update()
            version = found(versions, pk=harness_id)
            asked = read(HarnessLabel, request.data)
            editing.require_match(request, {"label": version.label})
            rename_harness(actor=actor_of(request), version=version, label=asked["label"])
            version.refresh_from_db()
        answer = harness_answer(request, version)
        return editing.tagged(request, answer, {"label": version.label})


def harness_row(request: Request, version: HarnessVersion) -> HarnessRow:
    return {
        "id": version.pk,
        "url": api_url(request, "harness", version.project_id, version.pk),
        "html_url": page_url(request, "harness", version.project_id, version.pk),
        "sha256": version.sha256,
        "label": version.label,
        "files": sorted(version.components),
        "created_at": version.created_at,
    }


def harness_answer(request: Request, version: HarnessVersion) -> HarnessAnswer:
    return {**harness_row(request, version), "files": dict(contents_of(version).texts)}
