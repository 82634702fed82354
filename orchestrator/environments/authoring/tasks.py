"""Changes of a draft's tasks: one by a form, many at once. Each can be undone once.

Whole-draft operations name the revision that their author saw. A single task names the digest of
what its form showed, so that two people may work on different tasks at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from orchestrator.environments.authoring.content import (
    content_of,
    digest_of,
    insert,
    remove,
)
from orchestrator.environments.authoring.errors import (
    DraftConflictError,
    DraftRefusedError,
    FieldsRefusedError,
)
from orchestrator.environments.authoring.holding import hold, keep
from orchestrator.environments.authoring.rows import MAX_ROWS, problem_of
from orchestrator.environments.authoring.undo import inverse
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import DraftTask, EnvironmentDraft, Split
from orchestrator.environments.services import NewTask
from orchestrator.projects.models import User

MAX_DRAFT_TASKS = MAX_ROWS


@dataclass(frozen=True)
class Moved:
    n_tasks: int
    n_references: int
    """Reference transcripts that were dropped: only train tasks may have one."""


def save_task(
    *, actor: User, draft: EnvironmentDraft, task: NewTask, key: str = "", seen: str = ""
) -> DraftTask:
    """A new task, or with `key` the changed content (and perhaps key) of an existing one.

    `seen`: `digest_of` what the form showed.

    Raises:
        FieldsRefusedError: the task does not fit its kind, or its key is taken.
        DraftConflictError: somebody else changed or deleted it meanwhile.
    """
    if problem := problem_of(KINDS[draft.environment.kind], task):
        raise FieldsRefusedError({problem[0]: problem[1]})
    if task.reference and task.split != Split.TRAIN:
        raise FieldsRefusedError({"reference": "is for train tasks only"})
    with transaction.atomic():
        draft = hold(draft, actor)
        before = _current(draft, key, seen) if key else None
        if task.key != key and DraftTask.objects.filter(draft=draft, key=task.key).exists():
            raise FieldsRefusedError({"key": f"{task.key} is taken by another task"})
        if before is None and draft.tasks.count() >= MAX_DRAFT_TASKS:
            raise DraftRefusedError(f"A draft has at most {MAX_DRAFT_TASKS:,} tasks.")
        if before is not None:
            remove(draft, [key])
        insert(draft, [task])
        step = inverse(
            f"change of {key}" if before else f"adding of {task.key}",
            remove_keys=[task.key],
            restore=[before] if before else [],
        )
        keep(draft, undo=step)
        return DraftTask.objects.get(draft=draft, key=task.key)


def _current(draft: EnvironmentDraft, key: str, seen: str) -> NewTask:
    row = DraftTask.objects.filter(draft=draft, key=key).first()
    if row is None:
        raise DraftConflictError(f"Somebody else has deleted {key} meanwhile.")
    content = content_of(row)
    if digest_of(content) != seen:
        raise DraftConflictError(f"Somebody else has changed {key} meanwhile.")
    return content


def delete_tasks(*, actor: User, draft: EnvironmentDraft, keys: Sequence[str]) -> int:
    with transaction.atomic():
        draft = hold(draft, actor)
        gone = _chosen(draft, keys)
        remove(draft, [task.key for task in gone])
        keep(draft, undo=inverse(f"delete of {_count(gone)}", restore=gone))
    return len(gone)


def duplicate_tasks(*, actor: User, draft: EnvironmentDraft, keys: Sequence[str]) -> list[str]:
    """Copies beside the originals, with keys of their own, in the same order."""
    with transaction.atomic():
        draft = hold(draft, actor)
        originals = _chosen(draft, keys)
        taken = set(draft.tasks.values_list("key", flat=True))
        if len(taken) + len(originals) > MAX_DRAFT_TASKS:
            raise DraftRefusedError(f"A draft has at most {MAX_DRAFT_TASKS:,} tasks.")
        copies = []
        for task in originals:
            key = free_key(task.key, taken)
            taken.add(key)
            copies.append(_with_key(task, key))
        insert(draft, copies)
        added = [task.key for task in copies]
        keep(draft, undo=inverse(f"copy of {_count(originals)}", remove_keys=added))
    return added


def _with_key(task: NewTask, key: str) -> NewTask:
    """A reset that names the task names the copy."""
    reset = dict(task.reset or {})
    if reset.get("task") == task.key:
        reset["task"] = key
    return replace(task, key=key, reset=reset)


def free_key(key: str, taken: set[str]) -> str:
    """`q1-copy`, `q1-copy-2`, …, at most 64 characters."""
    number = 1
    while True:
        suffix = "-copy" if number == 1 else f"-copy-{number}"
        candidate = key[: 64 - len(suffix)] + suffix
        if candidate not in taken:
            return candidate
        number += 1


def move_tasks(*, actor: User, draft: EnvironmentDraft, keys: Sequence[str], split: str) -> Moved:
    if split not in Split.values:
        raise FieldsRefusedError({"split": f"is one of {', '.join(Split.values)}"})
    with transaction.atomic():
        draft = hold(draft, actor)
        chosen = [task for task in _chosen(draft, keys) if task.split != split]
        return _move(draft, {task.key: split for task in chosen}, chosen, f"move to {split}")


def assign_splits(
    *, actor: User, draft: EnvironmentDraft, revision: int, seed: int, select: int, test: int
) -> Moved:
    """Every task drawn into a split by `seed`: so many into select and test, the rest into train.

    A task's place in the draw hangs on seed and key alone.
    """
    with transaction.atomic():
        draft = hold(draft, actor)
        if draft.revision != revision + 1:
            raise DraftConflictError("The tasks have changed meanwhile; look at the counts again.")
        tasks = [content_of(row) for row in draft.tasks.all()]
        if select < 0 or test < 0 or select + test > len(tasks):
            raise FieldsRefusedError(
                {"sizes": f"must be 0 or more and together at most {len(tasks):,}, all tasks"}
            )
        splits = drawn_splits([task.key for task in tasks], seed=seed, select=select, test=test)
        changed = [task for task in tasks if splits[task.key] != task.split]
        return _move(draft, splits, changed, "draw of the splits")


def drawn_splits(keys: Sequence[str], *, seed: int, select: int, test: int) -> dict[str, str]:
    order = sorted(keys, key=lambda key: hashlib.sha256(f"{seed}/{key}".encode()).digest())
    splits = dict.fromkeys(keys, str(Split.TRAIN))
    splits.update(dict.fromkeys(order[:test], str(Split.TEST)))
    splits.update(dict.fromkeys(order[test : test + select], str(Split.SELECT)))
    return splits


def _move(
    draft: EnvironmentDraft, splits: dict[str, str], chosen: list[NewTask], label: str
) -> Moved:
    dropped = [task for task in chosen if task.reference and splits[task.key] != Split.TRAIN]
    by_split: dict[str, list[str]] = {}
    for task in chosen:
        by_split.setdefault(splits[task.key], []).append(task.key)
    for split, keys in by_split.items():
        for start in range(0, len(keys), 500):
            part = DraftTask.objects.filter(draft=draft, key__in=keys[start : start + 500])
            part.update(split=split, **({} if split == Split.TRAIN else {"reference": None}))
    keep(draft, undo=inverse(f"{label} of {_count(chosen)}", restore=chosen))
    return Moved(len(chosen), len(dropped))


def _chosen(draft: EnvironmentDraft, keys: Iterable[str]) -> list[NewTask]:
    names = list(keys)
    rows: list[DraftTask] = []
    for start in range(0, len(names), 500):
        rows += DraftTask.objects.filter(draft=draft, key__in=names[start : start + 500])
    if not rows:
        raise DraftRefusedError("No task is chosen, or the chosen ones are gone.")
    return [content_of(row) for row in rows]


def _count(tasks: Sequence[NewTask]) -> str:
    return tasks[0].key if len(tasks) == 1 else f"{len(tasks):,} tasks"
