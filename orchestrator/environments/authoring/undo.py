"""The last change of a draft, taken back.

Every change leaves its inverse in `EnvironmentDraft.undo`: keys to remove, tasks to put back,
fields as they were. It is good for the very next revision only; what anybody changes after that
replaces it. Changes of very many tasks leave none: a draft can be discarded, its version stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from orchestrator.environments.authoring.content import as_json, from_json, insert, remove
from orchestrator.environments.authoring.errors import DraftConflictError, DraftRefusedError
from orchestrator.environments.authoring.holding import hold, keep
from orchestrator.environments.models import EnvironmentDraft
from orchestrator.environments.services import NewTask
from orchestrator.projects.models import User

MAX_TASKS = 1_000
"""Tasks that one undo can bring back; beyond them the row of the draft would weigh megabytes."""


def inverse(
    label: str,
    *,
    remove_keys: Iterable[str] = (),
    restore: Iterable[NewTask] = (),
    fields: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`label` goes on after "Undo": "delete of q1"."""
    tasks = list(restore)
    keys = list(remove_keys)
    if len(tasks) + len(keys) > MAX_TASKS:
        return {}
    return {
        "label": label,
        "remove": keys,
        "restore": [as_json(task) for task in tasks],
        "fields": fields or {},
    }


def undo_last(*, actor: User, draft: EnvironmentDraft, revision: int) -> str:
    """Takes back the change that made `revision`; what it was.

    Raises:
        DraftConflictError: the draft has changed since.
        DraftRefusedError: there is nothing that can be taken back.
    """
    with transaction.atomic():
        draft = hold(draft, actor)
        if draft.revision != revision + 1:
            raise DraftConflictError("The draft has changed since: that step cannot be undone.")
        step = draft.undo
        if not step:
            raise DraftRefusedError("There is no change to undo.")
        restored = [from_json(task) for task in step["restore"]]
        remove(draft, [*step["remove"], *(task.key for task in restored)])
        insert(draft, restored)
        for name, value in step["fields"].items():
            setattr(draft, name, value)
        keep(draft, undo={}, fields=tuple(step["fields"]))
    return str(step["label"])
