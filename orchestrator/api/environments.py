"""Environments, their versions, tasks and checks."""

from __future__ import annotations

import datetime
import json
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import idempotency, paging
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
from orchestrator.environments.authoring.drafts import delete_environment
from orchestrator.environments.conformance.queries import badges
from orchestrator.environments.conformance.services import (
    OPEN_STATES,
    cancel_check,
    check_environment,
)
from orchestrator.environments.folders import CONFIG, TASKS, read_files, store
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import (
    Environment,
    EnvironmentCheck,
    EnvironmentVersion,
    Split,
    Task,
)
from orchestrator.environments.queries import list_tasks, task_counts
from orchestrator.environments.services import connect_environment
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project

MOST_TASKS = 50_000


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


class FindingAnswer(TypedDict):
    id: str
    status: Annotated[str, "pass, warn, fail, skip or error."]
    evidence: str
    remediation: str


class CheckAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    version: int
    state: str
    has_ended: bool
    error: str
    n_total: int
    results: list[FindingAnswer]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


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
                environments_in(project),
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


class EnvironmentDetail(Endpoint):
    area = "environments"

    @operation(EnvironmentAnswer)
    def get(self, request: Request, project_id: int, slug: str) -> Response:
        """One environment."""
        project = project_for_view(request.user, project_id)
        return Response(environment_answer(request, found(environments_in(project), slug=slug)))

    @operation(None, status=204, says="Gone.")
    def delete(self, request: Request, project_id: int, slug: str) -> Response:
        """Only while nothing has used it. Editors."""
        project = project_for_edit(request.user, project_id)
        environment = found(environments_in(project), slug=slug)
        delete_environment(actor=actor_of(request), environment=environment)
        return Response(status=204)


class EnvironmentVersions(Endpoint):
    area = "environments"

    @operation(page_of(VersionAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str) -> Response:
        """The published versions, newest first."""
        project = project_for_view(request.user, project_id)
        environment = found(environments_in(project), slug=slug)
        return Response(
            paging.paged(
                request,
                versions_in(project).filter(environment=environment),
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
        version = found(versions_in(project), environment__slug=slug, number=number)
        return Response(version_answers(request, project.pk, [version])[0])


class EnvironmentTasks(Endpoint):
    area = "environments"

    @operation(page_of(TaskAnswer), query=TasksQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """The tasks of a version, without what would solve them."""
        project = project_for_view(request.user, project_id)
        version = found(versions_in(project), environment__slug=slug, number=number)
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


class EnvironmentChecks(Endpoint):
    area = "environments"

    @operation(page_of(CheckAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """The checks of a version, newest first."""
        project = project_for_view(request.user, project_id)
        version = found(versions_in(project), environment__slug=slug, number=number)
        return Response(
            paging.paged(
                request,
                checks_in(project).filter(version=version),
                lambda rows: [check_answer(request, row) for row in rows],
                html_url=page_url(request, "environment_checks", project.pk, slug),
            )
        )

    @operation(
        CheckAnswer,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int, slug: str, number: int) -> Response:
        """Checks that the environment does what an environment must. Editors."""
        project = project_for_edit(request.user, project_id)
        version = found(versions_in(project), environment__slug=slug, number=number)

        def start() -> Response:
            check = check_environment(actor=actor_of(request), version=version)
            answer = check_answer(request, check)
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, start)


class EnvironmentCheckDetail(Endpoint):
    area = "environments"

    @operation(CheckAnswer)
    def get(self, request: Request, project_id: int, check_id: int) -> Response:
        """One check with what it has found so far."""
        project = project_for_view(request.user, project_id)
        return Response(check_answer(request, found(checks_in(project), pk=check_id)))


class EnvironmentCheckCancel(Endpoint):
    area = "environments"

    @operation(CheckAnswer, status=202, says="Asked to end; what was found stays.")
    def post(self, request: Request, project_id: int, check_id: int) -> Response:
        """Ends a check; one that has ended stays as it is. Editors."""
        project = project_for_edit(request.user, project_id)
        check = found(checks_in(project), pk=check_id)
        cancel_check(actor=actor_of(request), check=check)
        return Response(check_answer(request, found(checks_in(project), pk=check_id)), status=202)


def environments_in(project: Project) -> Any:
    return Environment.objects.filter(project=project).prefetch_related("versions")


def versions_in(project: Project) -> Any:
    versions = EnvironmentVersion.objects.filter(environment__project=project)
    return versions.select_related("environment")


def checks_in(project: Project) -> Any:
    checks = EnvironmentCheck.objects.filter(version__environment__project=project)
    return checks.select_related("version__environment", "job").prefetch_related("results")


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


def check_answer(request: Request, check: EnvironmentCheck) -> CheckAnswer:
    version = check.version
    project_id, slug = version.environment.project_id, version.environment.slug
    return {
        "id": check.pk,
        "url": api_url(request, "environment_check", project_id, check.pk),
        "html_url": page_url(request, "environment_checks", project_id, slug),
        "version": version.number,
        "state": check.state,
        "has_ended": check.state not in OPEN_STATES,
        "error": check.error,
        "n_total": check.n_total,
        "results": [
            {
                "id": result.check_id,
                "status": result.status,
                "evidence": result.evidence,
                "remediation": result.remediation,
            }
            for result in check.results.all()
        ],
        "created_at": check.created_at,
        "ended_at": check.ended_at,
    }
