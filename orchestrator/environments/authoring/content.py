"""The content of a task as a value, whether it stands in a draft, a version or an upload."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from orchestrator.environments.models import DraftTask, EnvironmentDraft, Task
from orchestrator.environments.services import NewTask

BATCH = 500
"""Rows of one INSERT: SQLite takes 32,766 variables, a task has eleven."""


def content_of(task: Task | DraftTask) -> NewTask:
    return NewTask(
        key=task.key,
        split=task.split,
        prompt=task.prompt,
        family=task.family,
        reset=task.reset,
        spec=task.spec,
        reference=task.reference,
        difficulty=task.difficulty,
        limits=task.limits,
        seeds=task.seeds,
    )


_NAMES = tuple(field.name for field in fields(NewTask))


def as_json(task: NewTask) -> dict[str, Any]:
    """Not `asdict`, which copies every value: ten thousand tasks at a time come by here."""
    return {name: getattr(task, name) for name in _NAMES}


def from_json(value: Mapping[str, Any]) -> NewTask:
    return NewTask(**value)


def digest_of(task: NewTask) -> str:
    """Equal for equal content; what a form remembers of the task that it shows."""
    content = {name: getattr(task, name) or None for name in _NAMES}
    content["difficulty"] = None if task.difficulty is None else float(task.difficulty)
    return digest(content)


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def insert(draft: EnvironmentDraft, tasks: Iterable[NewTask]) -> int:
    """Inside the caller's transaction. Their keys are free."""
    rows = list(_rows(draft, tasks))
    DraftTask.objects.bulk_create(rows, batch_size=BATCH)
    return len(rows)


def _rows(draft: EnvironmentDraft, tasks: Iterable[NewTask]) -> Iterator[DraftTask]:
    for task in tasks:
        yield DraftTask(
            draft=draft,
            key=task.key,
            split=task.split,
            family=task.family,
            difficulty=task.difficulty,
            prompt=task.prompt,
            reset=task.reset or {},
            spec=task.spec or {},
            limits=task.limits or {},
            seeds=task.seeds or [],
            reference=task.reference,
        )


def remove(draft: EnvironmentDraft, keys: Iterable[str]) -> int:
    """Inside the caller's transaction; how many there were."""
    names = list(keys)
    n = 0
    for start in range(0, len(names), BATCH):
        part = names[start : start + BATCH]
        n += DraftTask.objects.filter(draft=draft, key__in=part).delete()[0]
    return n
