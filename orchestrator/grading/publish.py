"""A draft becomes a version: frozen, numbered, what scores name."""

from __future__ import annotations

from django.db import transaction

from orchestrator.grading.drafts import current, stale
from orchestrator.grading.models import RubricDraft
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from rubrics.models import RubricVersion
from rubrics.versions import create_rubric_version


def publish(*, draft: RubricDraft, actor: User, revision: int) -> RubricVersion:
    """The new version, or the newest one if the draft says the same. The draft is gone then.

    Raises:
        RubricInvalid: with every problem.
        DraftGone: published or discarded meanwhile.
        Stale: `revision` is not the stored one; who publishes has not seen what is stored.
    """
    require(actor, draft.rubric.project_id, Role.EDITOR)
    with transaction.atomic():
        # Whoever writes at the same time waits for this row, and finds it gone.
        RubricDraft.objects.select_for_update().filter(pk=draft.pk).first()
        stored = current(draft)
        if stored.revision != revision:
            raise stale(stored)
        version = create_rubric_version(rubric=stored.rubric, spec=stored.spec)
        stored.delete()
    return version
