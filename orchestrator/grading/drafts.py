"""Rubrics while they are written: begun, stored as a whole, given up.

A writer names the revision that it saw. Of two who write at once the second is told (`Stale`) what
is stored by now, and nothing of theirs is overwritten; the update is conditional in the database,
so this holds between processes too. What is unfinished is kept as it is: publishing asks for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from orchestrator.grading.errors import DraftGone, DraftRefused, Stale
from orchestrator.grading.findings import Reading, read
from orchestrator.grading.models import RubricDraft
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from rubrics.codec import MAX_CRITERIA
from rubrics.models import Rubric, RubricVersion
from rubrics.templates import TEMPLATES, template

MAX_BYTES = 512 * 1024
"""Of a rubric as JSON. The largest one seen in public has some 40 kB."""
MAX_NAME = 120
_UNKEPT = re.compile(r"[\ud800-\udfff]|(?<!\\)(?:\\\\)*\\u0000")
"""In JSON text; PostgreSQL refuses both in a JSON column."""
EMPTY: Mapping[str, Any] = {"criteria": []}


@dataclass(frozen=True)
class Saved:
    draft: RubricDraft
    reading: Reading
    """What is missing and what could be better."""


def create_rubric(
    *, actor: User, project: Project, name: str, template_key: str = ""
) -> RubricDraft:
    """A new rubric with a draft: empty, or a copy of a template. Raises DraftRefused."""
    require(actor, project, Role.EDITOR)
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME:
        raise DraftRefused(f"The name must have 1 to {MAX_NAME} characters.")
    if template_key and template_key not in {t.key for t in TEMPLATES}:
        raise DraftRefused(f"There is no template {template_key!r}.")
    spec = template(template_key).spec if template_key else EMPTY
    try:
        with transaction.atomic():
            rubric = Rubric.objects.create(project=project, name=name)
            return RubricDraft.objects.create(rubric=rubric, spec=dict(spec), updated_by=actor)
    except IntegrityError:
        raise DraftRefused(f"The project has a rubric {name} already.") from None


def start_draft(
    *, actor: User, rubric: Rubric, version: RubricVersion | None = None
) -> RubricDraft:
    """With the content of `version`, else of the newest one; the existing draft if there is one."""
    require(actor, rubric.project_id, Role.EDITOR)
    base = version or rubric.versions.order_by("-number").first()
    draft, _ = RubricDraft.objects.get_or_create(
        rubric=rubric,
        defaults={
            "base": base,
            "spec": base.spec if base else dict(EMPTY),
            "updated_by": actor,
        },
    )
    return draft


def save_draft(*, actor: User, draft: RubricDraft, spec: Mapping[str, Any], revision: int) -> Saved:
    """Stores the whole rubric as revision + 1.

    Safe to repeat: the same content from the same person on top of `revision` counts as stored.

    Raises:
        DraftRefused: it is no rubric at all, or too large.
        DraftGone: published or discarded meanwhile.
        Stale: `revision` is not the stored one.
    """
    require(actor, draft.rubric.project_id, Role.EDITOR)
    content = checked(spec)
    with transaction.atomic():  # what is read back is what was written
        n = RubricDraft.objects.filter(pk=draft.pk, revision=revision).update(
            spec=content, revision=revision + 1, updated_by=actor, updated_at=timezone.now()
        )
        stored = current(draft)
    is_repeated = (
        stored.revision == revision + 1
        and stored.updated_by_id == actor.pk
        and stored.spec == content
    )
    if not n and not is_repeated:
        raise stale(stored)
    return Saved(stored, read(stored.spec))


def discard_draft(*, actor: User, draft: RubricDraft) -> bool:
    """Versions stay. A rubric that has none goes with its draft: true, if it did."""
    require(actor, draft.rubric.project_id, Role.EDITOR)
    with transaction.atomic():
        draft.delete()
        is_unpublished = not draft.rubric.versions.exists()
        if is_unpublished:
            draft.rubric.delete()
    return is_unpublished


def current(draft: RubricDraft) -> RubricDraft:
    """The stored row. Raises DraftGone."""
    found = (
        RubricDraft.objects.select_related("rubric", "base", "updated_by")
        .filter(pk=draft.pk)
        .first()
    )
    if found is None:
        raise DraftGone("This draft was published or discarded meanwhile.")
    return found


def stale(stored: RubricDraft) -> Stale:
    by = stored.updated_by.username if stored.updated_by else ""
    return Stale(stored.spec, stored.revision, by, stored.updated_at)


def checked(spec: Any) -> dict[str, Any]:
    """What can be kept as a draft and matched by ids; more is not asked. Raises DraftRefused."""
    if not isinstance(spec, Mapping):
        raise DraftRefused("A rubric is a JSON object.")
    try:
        text = json.dumps(spec, allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as exc:
        raise DraftRefused(f"The rubric is not plain JSON: {exc}.") from None
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_BYTES:
        raise DraftRefused(f"The rubric has {size_bytes:,} bytes; the limit is {MAX_BYTES:,}.")
    if _UNKEPT.search(text):
        raise DraftRefused("The rubric holds NUL or half a character, which no database keeps.")
    _check_list(spec, "criteria", MAX_CRITERIA)
    _check_list(spec, "groups", MAX_CRITERIA)
    return dict(spec)


def _check_list(spec: Mapping[str, Any], key: str, limit: int) -> None:
    listed = spec.get(key, [])
    if not isinstance(listed, list):
        raise DraftRefused(f"{key} is a list of objects.")
    if len(listed) > limit:
        raise DraftRefused(f"{key} has {len(listed)} entries; the limit is {limit}.")
    seen: set[str] = set()
    for number, item in enumerate(listed, start=1):
        id = item.get("id") if isinstance(item, Mapping) else None
        if not isinstance(id, str) or not id:
            raise DraftRefused(f"Entry {number} of {key} is not an object with an id.")
        if id in seen:
            raise DraftRefused(f"The id {id} stands twice in {key}; ids tell them apart.")
        seen.add(id)
