"""Rubrics, their drafts and versions, and re-grades by them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.db import transaction
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing, idempotency, paging, steering
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
from orchestrator.grading.drafts import create_rubric, discard_draft, save_draft, start_draft
from orchestrator.grading.findings import read as read_spec
from orchestrator.grading.models import RubricDraft
from orchestrator.grading.publish import MAX_NOTE, publish
from orchestrator.grading.queries import (
    rubric_drafts_in,
    rubric_versions_in,
    rubrics_in,
    rubrics_with_versions,
    version_numbered,
)
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project
from rubrics.models import Rubric, RubricVersion
from rubrics.templates import TEMPLATES


class RubricAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    name: str
    versions: Annotated[list[int], "Numbers, newest first."]
    has_draft: bool
    created_at: datetime.datetime


class RubricVersionAnswer(TypedDict):
    rubric: Annotated[int, "Its id."]
    number: int
    url: str
    html_url: str
    spec: Annotated[dict[str, Any], "Criteria, groups and how they are put together."]
    sha256: str
    note: str
    failed_golden: Annotated[list[str], "Golden cases that did not hold, published all the same."]
    created_at: datetime.datetime


class DraftAnswer(TypedDict):
    rubric: Annotated[int, "Its id."]
    url: str
    html_url: str
    revision: int
    spec: dict[str, Any]
    problems: Annotated[list[str], "What keeps it from being published."]
    updated_at: datetime.datetime


class NewRubric(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    template = serializers.ChoiceField(
        [template.key for template in TEMPLATES],
        required=False,
        help_text="Starts as a copy of it.",
    )


class DraftContent(serializers.Serializer[Any]):
    spec = serializers.DictField(help_text="The whole rubric; it may be unfinished.")


class Publication(serializers.Serializer[Any]):
    note = serializers.CharField(max_length=MAX_NOTE, default="", allow_blank=True)
    anyway = serializers.BooleanField(
        default=False, help_text="Golden cases need not hold; takes a note."
    )


class Rubrics(Endpoint):
    area = "rubrics"

    @operation(page_of(RubricAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The rubrics of a project, in the order they were made."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                rubrics_with_versions(project.pk),
                lambda rows: [rubric_answer(request, row) for row in rows],
                html_url=page_url(request, "rubrics", project.pk),
                newest_first=False,
            )
        )

    @operation(
        RubricAnswer,
        body=NewRubric,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="Made, with a draft.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """A rubric with a draft: empty, or a copy of a template. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewRubric, request.data)

        def make() -> Response:
            draft = create_rubric(
                actor=actor_of(request),
                project=project,
                name=asked["name"],
                template_key=asked.get("template", ""),
            )
            answer = rubric_answer(
                request, found(rubrics_with_versions(project.pk), pk=draft.rubric_id)
            )
            return created(request, answer, answer["url"])

        return idempotency.once(request, make)


class RubricDetail(Endpoint):
    area = "rubrics"

    @operation(RubricAnswer)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """One rubric."""
        project = project_for_view(request.user, project_id)
        return Response(
            rubric_answer(request, found(rubrics_with_versions(project.pk), pk=rubric_id))
        )


class RubricVersions(Endpoint):
    area = "rubrics"

    @operation(page_of(RubricVersionAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """The published versions, newest first."""
        project = project_for_view(request.user, project_id)
        rubric = found(rubrics_in(project.pk), pk=rubric_id)
        return Response(
            paging.paged(
                request,
                rubric_versions_in(project.pk).filter(rubric=rubric),
                lambda rows: [rubric_version_answer(request, row) for row in rows],
                html_url=page_url(request, "rubric", project.pk, rubric.pk),
            )
        )


class RubricVersionDetail(Endpoint):
    area = "rubrics"

    @operation(RubricVersionAnswer)
    def get(self, request: Request, project_id: int, rubric_id: int, number: int) -> Response:
        """One version."""
        project = project_for_view(request.user, project_id)
        version = found(rubric_versions_in(project.pk), rubric_id=rubric_id, number=number)
        return Response(rubric_version_answer(request, version))


class RubricDraftDetail(Endpoint):
    area = "rubrics"

    @operation(DraftAnswer)
    def get(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """What is being written; 404 while nothing is."""
        project = project_for_view(request.user, project_id)
        return drafted(request, found(rubric_drafts_in(project.pk), rubric_id=rubric_id))

    @operation(DraftAnswer, says="The new draft, or the one that there was.")
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Begins a draft with the content of the newest version. Editors."""
        project = project_for_edit(request.user, project_id)
        draft = start_draft(
            actor=actor_of(request), rubric=found(rubrics_in(project.pk), pk=rubric_id)
        )
        return drafted(request, found(rubric_drafts_in(project.pk), pk=draft.pk))

    @operation(DraftAnswer, body=DraftContent, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Stores the whole draft over the revision that was read. Editors."""
        project = project_for_edit(request.user, project_id)
        draft = found(rubric_drafts_in(project.pk), rubric_id=rubric_id)
        asked = read(DraftContent, request.data)
        editing.require_match(request, editable(draft))
        saved = save_draft(
            actor=actor_of(request), draft=draft, spec=asked["spec"], revision=draft.revision
        )
        return drafted(request, saved.draft)

    @operation(None, parameters=[editing.PARAMETER], status=204, says="Gone; versions stay.")
    def delete(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Gives the draft up; a rubric without a version goes with it. Editors."""
        project = project_for_edit(request.user, project_id)
        with transaction.atomic():
            draft = found(
                rubric_drafts_in(project.pk).select_for_update(of=("self",)), rubric_id=rubric_id
            )
            editing.require_match(request, editable(draft))
            discard_draft(actor=actor_of(request), draft=draft)
        return Response(status=204)


class RubricPublish(Endpoint):
    area = "rubrics"

    @operation(
        RubricVersionAnswer,
        body=Publication,
        parameters=[editing.PARAMETER],
        status=201,
        says="The new version, or the newest where the draft says the same.",
    )
    def post(self, request: Request, project_id: int, rubric_id: int) -> Response:
        """Makes a version of the draft that was read. Editors."""
        project = project_for_edit(request.user, project_id)
        draft = found(rubric_drafts_in(project.pk), rubric_id=rubric_id)
        asked = read(Publication, request.data)
        editing.require_match(request, editable(draft))
        version = publish(
            draft=draft,
            actor=actor_of(request),
            revision=draft.revision,
            note=asked["note"],
            anyway=asked["anyway"],
        )
        answer = rubric_version_answer(request, version)
        return created(request, answer, answer["url"])


class OfRubric(steering.Listing):
    """Work on a rubric that the address names; `planned` finds it under `rubric`."""

    @staticmethod
    def located(project: Project, **named: Any) -> Mapping[str, Any]:
        return {"rubric": found(rubrics_in(project.pk), pk=named["rubric_id"])}

    def listed_of(
        self, request: Request, project_id: int, rubric_id: int, *, by: str = "rubric", **more: Any
    ) -> Response:
        """`by`: the field of the work that leads to the rubric."""
        rubric = found(rubrics_in(project_for_view(request.user, project_id).pk), pk=rubric_id)
        return self.listed(request, project_id, rubric.pk, **{by: rubric}, **more)


def version_of(rubric: Rubric, number: int | None) -> RubricVersion:
    """The newest where none is named. Raises ValidationError."""
    version = version_numbered(rubric, number)
    if version is None:
        raise ValidationError({"version": ["names no version of this rubric"]})
    return version


def editable(draft: RubricDraft) -> dict[str, Any]:
    return {"draft": draft.pk, "revision": draft.revision}


def rubric_answer(request: Request, rubric: Rubric) -> RubricAnswer:
    return {
        "id": rubric.pk,
        "url": api_url(request, "rubric", rubric.project_id, rubric.pk),
        "html_url": page_url(request, "rubric", rubric.project_id, rubric.pk),
        "name": rubric.name,
        "versions": sorted((v.number for v in rubric.versions.all()), reverse=True),
        "has_draft": hasattr(rubric, "draft"),
        "created_at": rubric.created_at,
    }


def rubric_version_answer(request: Request, version: RubricVersion) -> RubricVersionAnswer:
    where = (version.rubric.project_id, version.rubric_id)
    return {
        "rubric": version.rubric_id,
        "number": version.number,
        "url": api_url(request, "rubric_version", *where, version.number),
        "html_url": f"{page_url(request, 'rubric', *where)}?version={version.number}",
        "spec": version.spec,
        "sha256": version.sha256,
        "note": version.note,
        "failed_golden": version.failed_golden,
        "created_at": version.created_at,
    }


def drafted(request: Request, draft: RubricDraft) -> Response:
    return editing.tagged(request, draft_answer(request, draft), editable(draft))


def draft_answer(request: Request, draft: RubricDraft) -> DraftAnswer:
    where = (draft.rubric.project_id, draft.rubric_id)
    return {
        "rubric": draft.rubric_id,
        "url": api_url(request, "rubric_draft", *where),
        "html_url": page_url(request, "rubric", *where),
        "revision": draft.revision,
        "spec": draft.spec,
        "problems": problems_of(draft.spec),
        "updated_at": draft.updated_at,
    }


def problems_of(spec: Any) -> list[str]:
    return [
        ": ".join(filter(None, (note.criterion or note.group, note.field, note.text)))
        for note in read_spec(spec).problems
    ]
