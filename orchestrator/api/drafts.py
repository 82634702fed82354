"""Environments while they are written: one draft each, published as a version.

Every change raises the draft's revision, of which its ETag is made: an edit that names an older one
is refused, whoever made the other.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

from django.db import transaction
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing, idempotency
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
from orchestrator.api.environments import VersionAnswer, version_answers
from orchestrator.api.making import made_once
from orchestrator.environments.authoring import drafts
from orchestrator.environments.authoring.publish import problems_of, publish
from orchestrator.environments.authoring.queries import (
    draft_counts,
    drafts_in,
    newest_version,
    version_numbered,
)
from orchestrator.environments.authoring.undo import undo_last
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import EnvironmentDraft
from orchestrator.environments.packages.services import KINDS_BY_REGISTRATION
from orchestrator.environments.queries import environments_in
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project

WRITTEN = sorted(set(KINDS) - {str(kind) for kind in KINDS_BY_REGISTRATION} - {"url"})
"""Kinds whose environments are written task by task."""


class DraftProblem(TypedDict):
    text: str
    task: Annotated[str, "Key of the task; empty for the settings."]
    is_warning: Annotated[bool, "It can be published all the same."]


class EnvironmentDraftAnswer(TypedDict):
    environment: Annotated[str, "Slug."]
    kind: str
    url: str
    html_url: str
    revision: Annotated[int, "Rises with every change."]
    base: Annotated[int | None, "Number of the version that it started from."]
    source: dict[str, Any]
    settings: Annotated[dict[str, Any], "Limits of an episode."]
    resources: Annotated[dict[str, Any], "Of a server."]
    description: Annotated[str, "What the agent is told before its task."]
    tasks: Annotated[dict[str, int], "Counts by split."]
    undo: Annotated[str, "What can be taken back; empty: nothing."]
    problems: list[DraftProblem]
    updated_at: datetime.datetime


class NewWritten(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    kind = serializers.ChoiceField(WRITTEN)
    about = serializers.CharField(
        max_length=2000, default="", allow_blank=True, help_text="For people."
    )


class EnvironmentDraftStart(serializers.Serializer[Any]):
    version = serializers.IntegerField(
        min_value=1, max_value=10**9, required=False, help_text="The newest if left out."
    )


class EnvironmentDraftChange(serializers.Serializer[Any]):
    """What is left out stays."""

    settings = serializers.DictField(required=False)
    resources = serializers.DictField(required=False)
    description = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    # `source` is an attribute of every field of DRF, and so no name for a declared one.

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        fields["source"] = serializers.DictField(required=False)
        return fields


class EnvironmentPublication(serializers.Serializer[Any]):
    note = serializers.CharField(max_length=2000, default="", allow_blank=True)


class WrittenEnvironments(Endpoint):
    area = "environments"

    @operation(
        EnvironmentDraftAnswer,
        body=NewWritten,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="Made, with an empty draft.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """An environment that is written task by task. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewWritten, request.data)
        return made_once(
            request,
            lambda: drafts.create_environment(
                actor=actor_of(request),
                project=project,
                name=asked["name"],
                kind=asked["kind"],
                description=asked["about"],
            ),
            lambda draft: draft_answer(request, draft),
        )


class EnvironmentDraftDetail(Endpoint):
    area = "environments"

    @operation(EnvironmentDraftAnswer)
    def get(self, request: Request, project_id: int, slug: str) -> Response:
        """What is being written; 404 while nothing is. Editors: it holds what solves its tasks."""
        project = project_for_edit(request.user, project_id)
        return drafted(request, found(drafts_in(project.pk), environment__slug=slug))

    @operation(
        EnvironmentDraftAnswer,
        body=EnvironmentDraftStart,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="Begun; one that is there is answered as it is.",
    )
    def post(self, request: Request, project_id: int, slug: str) -> Response:
        """Begins a draft with the content of a version. Editors."""
        project = project_for_edit(request.user, project_id)
        environment = found(environments_in(project.pk), slug=slug)
        number = read(EnvironmentDraftStart, request.data)
        version = (
            version_numbered(environment, number["version"])
            if number
            else newest_version(environment)
        )
        if number and version is None:
            raise ValidationError({"version": ["names no version of this environment"]})
        return made_once(
            request,
            lambda: drafts.start_draft(
                actor=actor_of(request), environment=environment, version=version
            ),
            lambda draft: draft_answer(request, found(drafts_in(project.pk), pk=draft.pk)),
        )

    @operation(EnvironmentDraftAnswer, body=EnvironmentDraftChange, parameters=[editing.PARAMETER])
    def patch(self, request: Request, project_id: int, slug: str) -> Response:
        """Changes what holds for all tasks; the source may be unfinished. Editors."""
        project = project_for_edit(request.user, project_id)
        with held(request, project, slug) as draft:
            asked = read(EnvironmentDraftChange, request.data)
            drafts.save_settings(
                actor=actor_of(request),
                draft=draft,
                seen=drafts.settings_digest(draft),
                values={name: getattr(draft, name) for name in drafts.FIELDS} | asked,
            )
        return drafted(request, found(drafts_in(project.pk), environment__slug=slug))

    @operation(None, parameters=[editing.PARAMETER], status=204, says="Gone; versions stay.")
    def delete(self, request: Request, project_id: int, slug: str) -> Response:
        """Gives the draft up with its tasks. Editors."""
        project = project_for_edit(request.user, project_id)
        with held(request, project, slug) as draft:
            drafts.discard_draft(actor=actor_of(request), draft=draft)
        return Response(status=204)


class EnvironmentDraftUndo(Endpoint):
    area = "environments"

    @operation(EnvironmentDraftAnswer, parameters=[editing.PARAMETER], says="As it was before.")
    def post(self, request: Request, project_id: int, slug: str) -> Response:
        """Takes the newest change back. Editors."""
        project = project_for_edit(request.user, project_id)
        with held(request, project, slug) as draft:
            undo_last(actor=actor_of(request), draft=draft, revision=draft.revision)
        return drafted(request, found(drafts_in(project.pk), environment__slug=slug))


class EnvironmentDraftPublish(Endpoint):
    area = "environments"

    @operation(
        VersionAnswer,
        body=EnvironmentPublication,
        parameters=[editing.PARAMETER, idempotency.PARAMETER],
        status=201,
        says="The version with this content; the draft is gone.",
    )
    def post(self, request: Request, project_id: int, slug: str) -> Response:
        """Makes a version of the draft that was read. Editors."""
        project = project_for_edit(request.user, project_id)

        def make() -> Response:
            with held(request, project, slug) as draft:
                asked = read(EnvironmentPublication, request.data)
                made = publish(
                    actor=actor_of(request),
                    draft=draft,
                    revision=draft.revision,
                    note=asked["note"],
                )
            answer = version_answers(request, project.pk, [made.version])[0]
            return created(request, answer, answer["url"])

        return idempotency.once(request, make)


@contextmanager
def held(request: Request, project: Project, slug: str) -> Iterator[EnvironmentDraft]:
    """The draft, locked, once the request has named its revision."""
    with transaction.atomic():
        rows = drafts_in(project.pk).select_for_update(of=("self",))
        draft: EnvironmentDraft = found(rows, environment__slug=slug)
        editing.require_match(request, editable(draft))
        yield draft


def editable(draft: EnvironmentDraft) -> dict[str, Any]:
    return {"draft": draft.pk, "revision": draft.revision}


def drafted(request: Request, draft: EnvironmentDraft) -> Response:
    return editing.tagged(request, draft_answer(request, draft), editable(draft))


def draft_answer(request: Request, draft: EnvironmentDraft) -> EnvironmentDraftAnswer:
    environment = draft.environment
    where = (environment.project_id, environment.slug)
    return {
        "environment": environment.slug,
        "kind": environment.kind,
        "url": api_url(request, "environment_draft", *where),
        "html_url": page_url(request, "draft", *where),
        "revision": draft.revision,
        "base": None if draft.base is None else draft.base.number,
        "source": draft.source,
        "settings": draft.settings,
        "resources": draft.resources,
        "description": draft.description,
        "tasks": draft_counts(draft),
        "undo": str(draft.undo.get("label", "")),
        "problems": [
            {"text": problem.text, "task": problem.task, "is_warning": problem.is_warning}
            for problem in problems_of(draft)
        ],
        "updated_at": draft.updated_at,
    }
