"""Which harness counts in an environment: released, and rolled back."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from optimizer.models import Release
from orchestrator.api import idempotency, paging, parts, work
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    chosen,
    conflicts,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.making import made_once
from orchestrator.api.shapes import page_of
from orchestrator.environments.queries import environments_in
from orchestrator.harnesses.queries import harness_versions_in, proofs_of, releases_in
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.searches import releases


class ReleaseAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    environment: Annotated[str, "Its slug."]
    harness: parts.HarnessRef
    counts: Annotated[bool, "Whether it is what the environment's runs work with now."]
    search: Annotated[int | None, "Its id, where the harness comes from one."]
    certificate: Annotated[int | None, "Id of the comparison that it rests on."]
    note: str
    approved_by: str | None
    created_at: datetime.datetime
    rolled_back_by: str | None
    rolled_back_at: datetime.datetime | None


class RolledBackAnswer(TypedDict):
    release: ReleaseAnswer
    counts_now: Annotated[ReleaseAnswer | None, "Null: nothing is released there now."]
    html_url: str


class ReleasesQuery(serializers.Serializer[Any]):
    environment = serializers.SlugField(max_length=64, required=False)


class NewRelease(serializers.Serializer[Any]):
    environment = serializers.SlugField(max_length=64, help_text="Its slug.")
    harness = work.id_field(help_text="Its id.")
    note = serializers.CharField(max_length=2000, default="", allow_blank=True)


class Releases(Endpoint):
    area = "harnesses"

    @operation(page_of(ReleaseAnswer), query=ReleasesQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """Releases of harnesses, newest first, those that were rolled back too."""
        project = project_for_view(request.user, project_id)
        asked = read(ReleasesQuery, request.query_params)
        rows = releases_in(project.pk)
        if "environment" in asked:
            rows = rows.filter(environment__slug=asked["environment"])
        return Response(
            paging.paged(
                request,
                rows,
                lambda found: release_answers(request, project, found),
                html_url=page_url(request, "releases", project.pk),
            )
        )

    @operation(
        ReleaseAnswer,
        body=NewRelease,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="It counts from now on.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Releases a harness in an environment, on the evidence that there is of it. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewRelease, request.data)
        environment = chosen(environments_in(project.pk), "environment", slug=asked["environment"])
        harness = chosen(harness_versions_in(project.pk), "harness", pk=asked["harness"])
        proof = proofs_of(project.pk, [harness.sha256]).get(harness.sha256)
        proof = proof if proof is not None and proof.is_about(environment) else None
        return made_once(
            request,
            lambda: releases.release(
                actor=actor_of(request),
                environment=environment,
                harness=harness,
                search=proof.comparison.search if proof else None,
                certificate=proof.comparison if proof else None,
                note=asked["note"],
            ),
            lambda made: _told(request, project, made.pk),
        )


class ReleaseDetail(Endpoint):
    area = "harnesses"

    @operation(ReleaseAnswer)
    def get(self, request: Request, project_id: int, release_id: int) -> Response:
        """One release."""
        project = project_for_view(request.user, project_id)
        return Response(_told(request, project, release_id))


class ReleaseRollBack(Endpoint):
    area = "harnesses"

    @operation(
        RolledBackAnswer,
        parameters=[idempotency.PARAMETER],
        says="What counted before counts again.",
    )
    def post(self, request: Request, project_id: int, release_id: int) -> Response:
        """Takes back the release that counts. Editors."""
        project = project_for_edit(request.user, project_id)
        release = found(releases_in(project.pk), pk=release_id)

        def take_back() -> Response:
            with conflicts():
                counts = releases.roll_back(actor=actor_of(request), release=release)
            answer: RolledBackAnswer = {
                "release": _told(request, project, release.pk),
                "counts_now": _told(request, project, counts.pk) if counts else None,
                "html_url": page_url(request, "releases", project.pk),
            }
            return Response(answer)

        return idempotency.once(request, take_back)


def _told(request: Request, project: Project, release_id: int) -> ReleaseAnswer:
    return release_answers(request, project, [found(releases_in(project.pk), pk=release_id)])[0]


def release_answers(
    request: Request, project: Project, rows: Sequence[Release]
) -> list[ReleaseAnswer]:
    counting = releases.counting_in(project.pk)
    return [_answer(request, row, row.pk in counting) for row in rows]


def _answer(request: Request, release: Release, counts: bool) -> ReleaseAnswer:
    by, back_by = release.approved_by, release.rolled_back_by
    return {
        "id": release.pk,
        "url": api_url(request, "release", release.project_id, release.pk),
        "html_url": page_url(request, "releases", release.project_id),
        "environment": release.environment.slug,
        "harness": parts.harness_ref(release.harness),
        "counts": counts,
        "search": release.search_id,
        "certificate": release.certificate_id,
        "note": release.note,
        "approved_by": by.get_username() if by else None,
        "created_at": release.created_at,
        "rolled_back_by": back_by.get_username() if back_by else None,
        "rolled_back_at": release.rolled_back_at,
    }
