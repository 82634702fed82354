"""How writers of one draft take turns.

A change first raises the draft's revision, which takes its row until the transaction ends; then it
looks whether what it changes is still what its author saw. So of two people the second is told,
and people who work on different tasks do not disturb each other.
"""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.utils import timezone

from orchestrator.environments.authoring.errors import DraftRefusedError
from orchestrator.environments.models import EnvironmentDraft
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User


def hold(draft: EnvironmentDraft, actor: User) -> EnvironmentDraft:
    """The draft as it is now, its revision raised. Inside a transaction, before any reading.

    Raises DraftRefusedError if it was published or discarded meanwhile.
    """
    require(actor, draft.environment.project_id, Role.EDITOR)
    changed = EnvironmentDraft.objects.filter(pk=draft.pk).update(
        revision=F("revision") + 1, updated_by=actor, updated_at=timezone.now()
    )
    if not changed:
        raise DraftRefusedError(
            "This draft is gone: it was published or discarded. Start a new one from the newest "
            "version."
        )
    return EnvironmentDraft.objects.select_related("environment", "updated_by", "base").get(
        pk=draft.pk
    )


def keep(draft: EnvironmentDraft, *, undo: dict[str, Any], fields: tuple[str, ...] = ()) -> None:
    """Stores what a change did beside its tasks."""
    draft.undo = undo
    draft.save(update_fields=["undo", *fields])
