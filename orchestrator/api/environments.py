"""Environments, their versions, tasks and checks."""

from __future__ import annotations

import datetime
import json
from typing import Annotated, Any, TypedDict

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

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
from orchestrator.environments.authoring.archives import unzipped
from orchestrator.environments.authoring.drafts import delete_environment, describe_environment
from orchestrator.environments.conformance.queries import badges
from orchestrator.environments.folders import CONFIG, TASKS, read_files, store
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import (
    Environment,
    EnvironmentVersion,
    Split,
    Task,
)
from orchestrator.environments.queries import (
    environments_in,
    environments_with_versions,
    list_tasks,
    task_counts,
    versions_in,
)
from orchestrator.environments.services import connect_environment
from orchestrator.projects.access import project_for_edit, project_for_view

MOST_TASKS = 50_000
MOST_ZIP = 90 * 2**20
"""Characters of base64."""


class EnvironmentAnswer(TypedDict):
    slug: str
    url: str
    html_url: str
    name: str
    kind: str
    about: Annotated[str, "For people."]
    versions: Annotated[list[int], "Numbers, newest first; empty while there is only a draft."]
    created_at: datetime.datetime


class VersionAnswer(TypedDict):
    environment: Annotated[str, "Slug."]
    number: int
    url: str
    html_url: str
    sha256: Annotated[str, "Of its content, tasks included."]
    description: Annotated[str, "What the agent is told before its task."]
    note: str
    settings: Annotated[dict[str, Any], "Limits of an episode."]
    resources: Annotated[dict[str, Any], "Of a server."]
    tasks: Annotated[dict[str, int], "Counts by split."]
    check: Annotated[str, "Newest finished check: passed, warned, failed, unsure or never."]
    created_at: datetime.datetime


class TaskAnswer(TypedDict):
    key: str
    split: str
    family: str
    prompt: str
    difficulty: float | None
    limits: dict[str, Any]
    seeds: list[Any]
    html_url: str


class NewEnvironment(serializers.Serializer[Any]):
    """The folder form of an environment as one object."""

    name = serializers.CharField(max_length=120, help_text="An existing name: a new version.")
    kind = serializers.ChoiceField(sorted(KINDS))
    about = serializers.CharField(default="", allow_blank=True, max_length=20_000)
    description = serializers.CharField(
        default="", allow_blank=True, max_length=200_000, help_text="What the agent is told first."
    )
    settings = serializers.DictField(default=dict, help_text="Limits of an episode.")
    resources = serializers.DictField(default=dict, help_text="Of a server.")
    tasks = serializers.ListField(
        child=serializers.DictField(),
        max_length=MOST_TASKS,
        help_text="As lines of `tasks.jsonl`: key, split, group, prompt and the kind's own fields.",
    )
    # `source` is an attribute of every field of DRF, and so no name for a declared one.

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        fields["source"] = serializers.DictField(
            default=dict, help_text="What the kind needs to run or reach its server."
        )
        return fields


class EnvironmentChange(serializers.Serializer[Any]):
    """What is left out stays."""

    name = serializers.CharField(max_length=120, required=False)
    about = serializers.CharField(max_length=2000, required=False, allow_blank=True)


class NewFolder(serializers.Serializer[Any]):
    zip = serializers.CharField(
        max_length=MOST_ZIP, help_text="A zip file of the folder of an environment, in base64."
    )


class Connection(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    base_url = serializers.CharField(max_length=400, help_text="Of a running OpenEnv server.")


class TasksQuery(serializers.Serializer[Any]):
    split = serializers.ChoiceField(Split.choices, required=False)


class Environments(Endpoint):
    area = "environments"

    @operation(page_of(EnvironmentAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The environments of a project, in the order they were made."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                environments_with_versions(project.pk),
                lambda rows: [environment_answer(request, row) for row in rows],
                html_url=page_url(request, "environments", project.pk),
                newest_first=False,
            )
        )

    @operation(
        VersionAnswer,
        body=NewEnvironment,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="The version with this content; content that is there already is not stored again.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """An environment with all its tasks, or a new version of the one of that name. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewEnvironment, request.data)
        config = {name: value for name, value in asked.items() if name != "tasks" and value}
        lines = "".join(f"{json.dumps(task)}\n" for task in asked["tasks"])
        environment = read_files({CONFIG: json.dumps(config).encode(), TASKS: lines.encode()})

        def publish() -> Response:
            stored = store(actor=actor_of(request), project=project, environment=environment)
            answer = version_answers(request, project.pk, [stored.version])[0]
            return created(request, answer, answer["url"])

        return idempotency.once(request, publish)


class EnvironmentConnections(Endpoint):
    area = "environments"

    @operation(VersionAnswer, body=Connection, status=201, says="It answers, and is kept.")
    def post(self, request: Request, project_id: int) -> Response:
        """Registers a running OpenEnv server after real episodes have started on it. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(Connection, request.data)
        version = connect_environment(
            actor=actor_of(request),
            project=project,
            name=asked["name"],
            base_url=asked["base_url"],
        )
        answer = version_answers(request, project.pk, [version])[0]
        return created(request, answer, answer["url"])


class EnvironmentFolders(Endpoint):
    area = "environments"

    @operation(
        VersionAnswer,
        body=NewFolder,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="The version with this content; content that is there already is not stored again.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """The folder form of an environment, as a zip file. Editors."""
        project = project_for_edit(request.user, project_id)
        content = work.bytes_of(read(NewFolder, request.data)["zip"], "zip")
        environment = read_files(unzipped(content, marker=CONFIG))

        def publish() -> Response:
            stored = store(actor=actor_of(request), project=project, environment=environment)
            answer = version_answers(request, project.pk, [stored.version])[0]
            return created(request, answer, answer["url"])

        return idempotency.once(request, publish)


class EnvironmentDetail(Endpoint):
    area = "environments"

    @operation(EnvironmentAnswer)
    def get(self, request: Request, project_id: int, slug: str) -> Response:
        """One environment."""
        project = project_for_view(request.user, project_id)
        return _told(request, found(environments_with_versions(project.pk), slug=slug))

    @operation(EnvironmentAnswer, body=EnvironmentChange, parameters=[editing.PARAMETER])
    def patch(self, request: Request, project_id: int, slug: str) -> Response:
        """Name and text for people; the slug stays. Editors."""
        project = project_for_edit(request.user, project_id)
        with transaction.atomic():
            rows = environments_in(project.pk).select_for_update(of=("self",))
            environment = found(rows, slug=slug)
            asked = read(EnvironmentChange, request.data)
            editing.require_match(request, editable(environment))
            describe_environment(
                actor=actor_of(request),
                environment=environment,
                name=asked.get("name", environment.name),
                description=asked.get("about", environment.description),
            )
        return _told(request, found(environments_with_versions(project.pk), slug=slug))

    @operation(None, status=204, says="Gone.")
    def delete(self, request: Request, project_id: int, slug: str) -> Response:
        """Only while nothing has used it. Editors."""
        project = project_for_edit(request.user, project_id)
        environment = found(environments_in(project.pk), slug=slug)
        delete_environment(actor=actor_of(request), environment=environment)
        return Response(status=204)


class EnvironmentVersions(Endpoint):
    area = "environments"

    @operation(page_of(VersionAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str) -> Response:
        """The published versions, newest first."""
        project = project_for_view(request.user, project_id)
        environment = found(environments_in(project.pk), slug=slug)
        return Response(
            paging.paged(
                request,
                versions_in(project.pk).filter(environment=environment),
                lambda rows: version_answers(request, project.pk, rows),
                html_url=page_url(request, "environment", project.pk, slug),
            )
        )


class EnvironmentVersionDetail(Endpoint):
    area = "environments"

    @operation(VersionAnswer)
    def get(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """One version."""
        project = project_for_view(request.user, project_id)
        version = found(versions_in(project.pk), environment__slug=slug, number=number)
        return Response(version_answers(request, project.pk, [version])[0])


class EnvironmentTasks(Endpoint):
    area = "environments"

    @operation(page_of(TaskAnswer), query=TasksQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """The tasks of a version, without what would solve them."""
        project = project_for_view(request.user, project_id)
        version = found(versions_in(project.pk), environment__slug=slug, number=number)
        asked = read(TasksQuery, request.query_params)
        return Response(
            paging.paged(
                request,
                list_tasks(version.pk, split=asked.get("split")),
                lambda rows: [task_answer(request, project.pk, version, row) for row in rows],
                html_url=page_url(request, "environment", project.pk, slug),
                newest_first=False,
            )
        )


def editable(environment: Environment) -> dict[str, Any]:
    return {"name": environment.name, "about": environment.description}


def _told(request: Request, environment: Environment) -> Response:
    answer = environment_answer(request, environment)
    return editing.tagged(request, answer, editable(environment))


def environment_answer(request: Request, environment: Environment) -> EnvironmentAnswer:
    return {
        "slug": environment.slug,
        "url": api_url(request, "environment", environment.project_id, environment.slug),
        "html_url": page_url(request, "environment", environment.project_id, environment.slug),
        "name": environment.name,
        "kind": environment.kind,
        "about": environment.description,
        "versions": sorted((v.number for v in environment.versions.all()), reverse=True),
        "created_at": environment.created_at,
    }


def version_answers(
    request: Request, project_id: int, versions: list[EnvironmentVersion]
) -> list[VersionAnswer]:
    marks = badges(version.pk for version in versions)
    counts = task_counts([version.pk for version in versions])
    answers: list[VersionAnswer] = []
    for version in versions:
        slug = version.environment.slug
        page = page_url(request, "environment", project_id, slug)
        answers.append(
            {
                "environment": slug,
                "number": version.number,
                "url": api_url(request, "environment_version", project_id, slug, version.number),
                "html_url": f"{page}?version={version.number}",
                "sha256": version.sha256,
                "description": version.description,
                "note": version.note,
                "settings": version.settings,
                "resources": version.resources,
                "tasks": counts.get(version.pk, {}),
                "check": marks[version.pk].state if version.pk in marks else "never",
                "created_at": version.created_at,
            }
        )
    return answers


def task_answer(
    request: Request, project_id: int, version: EnvironmentVersion, task: Task
) -> TaskAnswer:
    slug = version.environment.slug
    return {
        "key": task.key,
        "split": task.split,
        "family": task.family,
        "prompt": task.prompt,
        "difficulty": task.difficulty,
        "limits": task.limits,
        "seeds": task.seeds,
        "html_url": page_url(request, "task", project_id, slug, version.number, task.key),
    }
