"""Tasks of a draft, one by one and many at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing, paging
from orchestrator.api.base import Endpoint, actor_of, api_url, found, operation, page_url, read
from orchestrator.api.drafts import EnvironmentDraftAnswer, drafted, editable, held
from orchestrator.api.shapes import page_of
from orchestrator.environments.authoring import tasks
from orchestrator.environments.authoring.content import content_of, digest_of
from orchestrator.environments.authoring.export import record_of
from orchestrator.environments.authoring.queries import draft_task, draft_tasks, drafts_in
from orchestrator.environments.authoring.rows import read_rows
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import DraftTask, EnvironmentDraft, Split
from orchestrator.environments.services import NewTask
from orchestrator.projects.access import project_for_edit

MOST_KEYS = 50_000


class DraftTaskAnswer(TypedDict):
    key: str
    url: str
    html_url: str
    task: Annotated[dict[str, Any], "As a line of `tasks.jsonl`, with what solves it."]


class DraftTasksQuery(serializers.Serializer[Any]):
    split = serializers.ChoiceField(Split.choices, required=False)
    group = serializers.CharField(max_length=64, required=False, allow_blank=True)
    q = serializers.CharField(max_length=200, required=False, help_text="In key or prompt.")


class DraftTaskContent(serializers.Serializer[Any]):
    task = serializers.DictField(
        help_text="As a line of `tasks.jsonl`: split, group, prompt and the kind's own fields. "
        "Another `key` renames it."
    )


class TasksChange(serializers.Serializer[Any]):
    action = serializers.ChoiceField(["move", "duplicate", "delete"])
    split = serializers.ChoiceField(Split.choices, required=False, help_text="Where to move to.")
    keys = serializers.ListField(
        child=serializers.CharField(max_length=64), min_length=1, max_length=MOST_KEYS
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs["action"] == "move") != ("split" in attrs):
            raise serializers.ValidationError({"split": "goes with the action move alone"})
        return attrs


class SplitDraw(serializers.Serializer[Any]):
    seed = serializers.IntegerField(min_value=0, max_value=999_999_999)
    select = serializers.IntegerField(min_value=0, max_value=MOST_KEYS)
    test = serializers.IntegerField(min_value=0, max_value=MOST_KEYS)


class DraftTasks(Endpoint):
    area = "environments"

    @operation(page_of(DraftTaskAnswer), query=DraftTasksQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str) -> Response:
        """The tasks of a draft, in the order they were added. Editors."""
        project = project_for_edit(request.user, project_id)
        draft = found(drafts_in(project.pk), environment__slug=slug)
        asked = read(DraftTasksQuery, request.query_params)
        rows = draft_tasks(
            draft, split=asked.get("split", ""), family=asked.get("group"), text=asked.get("q", "")
        )
        return Response(
            paging.paged(
                request,
                rows,
                lambda found: [task_answer(request, draft, row) for row in found],
                html_url=page_url(request, "draft", project.pk, slug),
                newest_first=False,
            )
        )


class DraftTaskDetail(Endpoint):
    area = "environments"

    @operation(DraftTaskAnswer)
    def get(self, request: Request, project_id: int, slug: str, key: str) -> Response:
        """One task of the draft. Editors."""
        project = project_for_edit(request.user, project_id)
        draft = found(drafts_in(project.pk), environment__slug=slug)
        row = found(draft_tasks(draft), key=key)
        return editing.tagged(request, task_answer(request, draft, row), editable(draft))

    @operation(DraftTaskAnswer, body=DraftTaskContent, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int, slug: str, key: str) -> Response:
        """Stores a task, new or changed, over the revision of the draft that was read. Editors."""
        project = project_for_edit(request.user, project_id)
        with held(request, project, slug) as draft:
            asked = read(DraftTaskContent, request.data)
            task = _read_task(draft, {"key": key, **asked["task"]})
            known = draft_task(draft, key)
            saved = tasks.save_task(
                actor=actor_of(request),
                draft=draft,
                task=task,
                key=known.key if known else "",
                seen=digest_of(content_of(known)) if known else "",
            )
        draft = found(drafts_in(project.pk), environment__slug=slug)
        return editing.tagged(request, task_answer(request, draft, saved), editable(draft))

    @operation(None, parameters=[editing.PARAMETER], status=204, says="Gone from the draft.")
    def delete(self, request: Request, project_id: int, slug: str, key: str) -> Response:
        """Deletes it; the newest change can be taken back. Editors."""
        project = project_for_edit(request.user, project_id)
        with held(request, project, slug) as draft:
            row = found(draft_tasks(draft), key=key)
            tasks.delete_tasks(actor=actor_of(request), draft=draft, keys=[row.key])
        return Response(status=204)


class DraftTasksChange(Endpoint):
    area = "environments"

    @operation(EnvironmentDraftAnswer, body=TasksChange, parameters=[editing.PARAMETER])
    def post(self, request: Request, project_id: int, slug: str) -> Response:
        """Moves, copies or deletes many tasks. Editors."""
        project = project_for_edit(request.user, project_id)
        with held(request, project, slug) as draft:
            asked = read(TasksChange, request.data)
            common: dict[str, Any] = {
                "actor": actor_of(request),
                "draft": draft,
                "keys": asked["keys"],
            }
            if asked["action"] == "move":
                tasks.move_tasks(**common, split=asked["split"])
            elif asked["action"] == "duplicate":
                tasks.duplicate_tasks(**common)
            else:
                tasks.delete_tasks(**common)
        return drafted(request, found(drafts_in(project.pk), environment__slug=slug))


class DraftSplit(Endpoint):
    area = "environments"

    @operation(EnvironmentDraftAnswer, body=SplitDraw, parameters=[editing.PARAMETER])
    def post(self, request: Request, project_id: int, slug: str) -> Response:
        """Draws every task into a split by a seed; what is neither goes to train. Editors."""
        project = project_for_edit(request.user, project_id)
        with held(request, project, slug) as draft:
            asked = read(SplitDraw, request.data)
            tasks.assign_splits(
                actor=actor_of(request), draft=draft, revision=draft.revision, **asked
            )
        return drafted(request, found(drafts_in(project.pk), environment__slug=slug))


def _read_task(draft: EnvironmentDraft, row: Mapping[str, Any]) -> NewTask:
    """As a row of a file is read. Raises ValidationError that names the field."""
    result = read_rows(KINDS[draft.environment.kind], "jsonl", json.dumps(row))
    if result.errors or len(result.tasks) != 1:
        raise ValidationError(
            {
                f"task.{error.field}" if error.field else "task": [error.reason]
                for error in result.errors
            }
            or {"task": ["is no task"]}
        )
    if result.unused:
        known = "no field of this kind's tasks"
        raise ValidationError({f"task.{name}": [f"is {known}"] for name in result.unused})
    return result.tasks[0].task


def task_answer(request: Request, draft: EnvironmentDraft, row: DraftTask) -> DraftTaskAnswer:
    environment = draft.environment
    where = (environment.project_id, environment.slug)
    return {
        "key": row.key,
        "url": api_url(request, "draft_task", *where, row.key),
        "html_url": page_url(request, "draft_task", *where, row.key),
        "task": record_of(KINDS[environment.kind], content_of(row)),
    }
