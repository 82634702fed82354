"""Drafts for tests."""

from __future__ import annotations

from typing import Any

from orchestrator.environments.authoring.content import content_of, digest_of
from orchestrator.environments.authoring.drafts import create_environment
from orchestrator.environments.authoring.tasks import save_task
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import DraftTask, EnvironmentDraft
from orchestrator.environments.services import NewTask
from tests.base import People

DEFAULTS = {
    field.name: field.default
    for field in KINDS["terminal"].task_fields
    if field.default is not None
}
"""What a form or a table gives a task that says nothing of it."""


def make_task(key: str = "q1", **overrides: Any) -> NewTask:
    """A terminal task that fits."""
    fields: dict[str, Any] = {
        "key": key,
        "split": "train",
        "prompt": f"{key}.txt: number of lines",
        "family": "count",
        "reset": {"task": key},
        "spec": {
            **DEFAULTS,
            "files": {f"{key}.txt": "a\nb\n"},
            "answer": "2",
            "match": "number",
        },
        **overrides,
    }
    return NewTask(**fields)


def make_draft(people: People, *tasks: NewTask, name: str = "Small files") -> EnvironmentDraft:
    draft = create_environment(
        actor=people.editor, project=people.project, name=name, kind="terminal"
    )
    for task in tasks:
        save_task(actor=people.editor, draft=draft, task=task)
    draft.refresh_from_db()
    return draft


def keys_of(draft: EnvironmentDraft) -> list[str]:
    return list(draft.tasks.values_list("key", flat=True))


def seen(draft: EnvironmentDraft, key: str) -> str:
    return digest_of(content_of(DraftTask.objects.get(draft=draft, key=key)))
