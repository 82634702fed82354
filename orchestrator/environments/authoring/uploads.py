"""Files of tasks: read and shown first, stored as a whole or not at all.

A preview keeps the good rows and the reasons for the bad ones beside the draft, which it does not
touch. Applying it is one transaction: whatever kills the process, the draft has all of them or
none. Rows are dropped once they are applied or discarded; the errors stay, for the list of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction

from orchestrator.environments.authoring.content import as_json, content_of, from_json, insert
from orchestrator.environments.authoring.errors import (
    DraftConflictError,
    DraftRefusedError,
    FieldsRefusedError,
)
from orchestrator.environments.authoring.holding import hold, keep
from orchestrator.environments.authoring.rows import MAX_BYTES, Format, read_rows
from orchestrator.environments.authoring.tasks import MAX_DRAFT_TASKS
from orchestrator.environments.authoring.undo import inverse
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import DraftTask, EnvironmentDraft, Split, TaskUpload
from orchestrator.environments.models.drafts import UploadState
from orchestrator.environments.services import NewTask
from orchestrator.projects import storage
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User

MODES = ("add", "replace")


@dataclass(frozen=True)
class Applied:
    n_added: int
    n_changed: int
    n_removed: int


def format_of(filename: str, content: bytes | str) -> Format:
    """By the name's end, else by the first character."""
    if filename.lower().endswith((".jsonl", ".ndjson", ".json")):
        return "jsonl"
    if filename.lower().endswith((".csv", ".tsv", ".txt")):
        return "csv"
    first = content.lstrip()[:1]
    return "jsonl" if first in ("{", "[", b"{", b"[") else "csv"


def preview_upload(
    *,
    actor: User,
    draft: EnvironmentDraft,
    filename: str,
    content: bytes | str,
    default_split: str = Split.TRAIN,
) -> TaskUpload:
    """Reads the file and keeps what was found. An earlier preview of the same person ends."""
    require(actor, draft.environment.project_id, Role.EDITOR)
    try:
        storage.check(draft.environment.project_id, len(content))
    except storage.StorageFull as full:
        raise DraftRefusedError(str(full)) from full
    if default_split not in Split.values:
        raise FieldsRefusedError({"split": f"is one of {', '.join(Split.values)}"})
    kind = KINDS[draft.environment.kind]
    result = read_rows(
        kind, format_of(filename, content), content, default_split=str(default_split)
    )
    splits = Counter(item.task.split for item in result.tasks)
    with transaction.atomic():
        TaskUpload.objects.filter(draft=draft, created_by=actor, state=UploadState.PREVIEW).update(
            state=UploadState.DISCARDED, rows=[]
        )
        return TaskUpload.objects.create(
            draft=draft,
            filename=filename[-200:] or "pasted rows",
            rows=[{"line": item.line, "task": as_json(item.task)} for item in result.tasks],
            errors=[asdict(error) for error in result.errors],
            summary={
                "n_tasks": len(result.tasks),
                "splits": {split: splits[split] for split in Split.values},
                "families": len({item.task.family for item in result.tasks}),
                "n_bad_rows": result.n_bad_rows,
                "n_errors": result.n_errors,
                "unused": list(result.unused),
            },
            created_by=actor,
        )


def apply_upload(*, actor: User, upload: TaskUpload, mode: str, revision: int) -> Applied:
    """Takes all rows of the preview into the draft.

    `add`: rows whose key is there already replace that task. `replace`: all other tasks go.

    Raises:
        DraftConflictError: the draft has changed since the preview was shown.
        DraftRefusedError: it was applied or discarded before, or has no good row.
    """
    if mode not in MODES:
        raise FieldsRefusedError({"mode": "is add or replace"})
    with transaction.atomic():
        draft = hold(upload.draft, actor)
        if draft.revision != revision + 1:
            raise DraftConflictError(
                "The tasks have changed since this preview was shown. Look at the counts again."
            )
        upload = TaskUpload.objects.get(pk=upload.pk)
        if upload.state != UploadState.PREVIEW:
            raise DraftRefusedError(f"This upload is {upload.get_state_display()} already.")
        tasks = [from_json(row["task"]) for row in upload.rows]
        if not tasks:
            raise DraftRefusedError("There is no good row to take in.")
        applied, step = _take_in(draft, tasks, mode, upload.filename)
        TaskUpload.objects.filter(pk=upload.pk).update(state=UploadState.APPLIED, rows=[])
        keep(draft, undo=step)
    return applied


def _take_in(
    draft: EnvironmentDraft, tasks: list[NewTask], mode: str, filename: str
) -> tuple[Applied, dict[str, Any]]:
    keys = {task.key for task in tasks}
    existing = DraftTask.objects.filter(draft=draft)
    present = set(existing.values_list("key", flat=True))
    gone = present if mode == "replace" else present & keys
    if len(present - gone) + len(tasks) > MAX_DRAFT_TASKS:
        raise DraftRefusedError(f"A draft has at most {MAX_DRAFT_TASKS:,} tasks.")
    before = [content_of(row) for row in existing.iterator(chunk_size=1000) if row.key in gone]
    # One DELETE for the usual cases; a list of keys could exceed what a statement takes.
    if gone == present:
        existing.delete()
    else:
        ordered = sorted(gone)
        for start in range(0, len(ordered), 500):
            existing.filter(key__in=ordered[start : start + 500]).delete()
    insert(draft, tasks)
    step = inverse(f"upload of {filename}", remove_keys=keys, restore=before)
    return Applied(len(keys - present), len(keys & present), len(gone - keys)), step


def discard_upload(*, actor: User, upload: TaskUpload) -> None:
    require(actor, upload.draft.environment.project_id, Role.EDITOR)
    TaskUpload.objects.filter(pk=upload.pk, state=UploadState.PREVIEW).update(
        state=UploadState.DISCARDED, rows=[]
    )


def too_large(size_bytes: int) -> str:
    """Why a file of this size is not read; empty if it is."""
    if size_bytes <= MAX_BYTES:
        return ""
    return (
        f"The file has {size_bytes / 2**20:.0f} MiB; the limit of a file is "
        f"{MAX_BYTES // 2**20} MiB. Split it and add the parts one after the other."
    )
