"""Drafts as a whole: started, their settings changed, discarded; environments made and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, models, transaction
from django.utils.text import slugify

from orchestrator.environments.authoring.content import content_of, digest, insert
from orchestrator.environments.authoring.errors import (
    DraftConflictError,
    DraftRefusedError,
    FieldsRefusedError,
)
from orchestrator.environments.authoring.holding import hold, keep
from orchestrator.environments.authoring.task_checks import check_limits
from orchestrator.environments.authoring.undo import inverse
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import (
    Environment,
    EnvironmentDraft,
    EnvironmentVersion,
    Task,
)
from orchestrator.environments.resources import Resources
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User

FIELDS = ("source", "settings", "resources", "description")


def create_environment(
    *, actor: User, project: Project, name: str, kind: str, description: str = ""
) -> EnvironmentDraft:
    """A new environment with an empty draft. `FieldsRefusedError` for a name that cannot be."""
    require(actor, project, Role.EDITOR)
    name = _name(name)
    if kind not in KINDS:
        raise FieldsRefusedError({"kind": f"is one of {', '.join(sorted(KINDS))}"})
    slug = slugify(name)[:60] or "environment"
    source = {
        field.name: field.default
        for field in KINDS[kind].source_fields
        if field.default is not None
    }
    try:
        with transaction.atomic():
            environment = Environment.objects.create(
                project=project, slug=slug, name=name, kind=kind, description=description.strip()
            )
            return EnvironmentDraft.objects.create(
                environment=environment, source=source, updated_by=actor
            )
    except IntegrityError:
        raise FieldsRefusedError(
            {"name": f"is taken: the project has an environment {slug} already"}
        ) from None


def describe_environment(
    *, actor: User, environment: Environment, name: str, description: str
) -> None:
    """Name and text for people. Addresses keep the slug; versions and results are untouched."""
    require(actor, environment.project_id, Role.EDITOR)
    environment.name = _name(name)
    environment.description = description.strip()
    environment.save(update_fields=["name", "description"])


def _name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > 120:
        raise FieldsRefusedError({"name": "must have 1 to 120 characters"})
    return name


def start_draft(
    *, actor: User, environment: Environment, version: EnvironmentVersion | None = None
) -> EnvironmentDraft:
    """A draft with the content of `version`, or an empty one; the existing one if there is one."""
    require(actor, environment.project_id, Role.EDITOR)
    with transaction.atomic():
        draft, is_new = EnvironmentDraft.objects.get_or_create(
            environment=environment,
            defaults={
                "base": version,
                "updated_by": actor,
                **({name: getattr(version, name) for name in FIELDS} if version else {}),
            },
        )
        if is_new and version is not None:
            tasks = Task.objects.filter(version=version).order_by("key")
            insert(draft, map(content_of, tasks.iterator(chunk_size=1000)))
    return draft


def settings_digest(draft: EnvironmentDraft) -> str:
    """What a form remembers of the settings that it shows."""
    return digest({name: getattr(draft, name) for name in FIELDS})


def save_settings(
    *, actor: User, draft: EnvironmentDraft, seen: str, values: Mapping[str, Any]
) -> EnvironmentDraft:
    """Stores source, settings, resources and description. The source may be unfinished: publishing
    asks for all of it.

    Raises:
        FieldsRefusedError: a field that can never be right; nothing is stored.
        DraftConflictError: they are not any more what the form showed (`seen`).
    """
    _check(values)
    with transaction.atomic():
        now = hold(draft, actor)
        if settings_digest(now) != seen:
            raise DraftConflictError("Somebody else has changed these settings meanwhile.")
        before = {name: getattr(now, name) for name in FIELDS}
        for name in FIELDS:
            setattr(now, name, values[name])
        keep(now, undo=inverse("change of the settings", fields=before), fields=FIELDS)
    return now


def _check(values: Mapping[str, Any]) -> None:
    errors = {}
    try:
        Resources.from_json(values["resources"])
    except (ValueError, TypeError) as exc:
        errors["resources"] = str(exc)
    try:
        check_limits(values["settings"])
    except ValueError as exc:
        errors["settings"] = str(exc)
    if len(values["description"]) > 20_000:
        errors["description"] = (
            f"has {len(values['description']):,} characters; the limit is 20,000"
        )
    if errors:
        raise FieldsRefusedError(errors)


def discard_draft(*, actor: User, draft: EnvironmentDraft) -> None:
    """The draft with its tasks and uploads is gone; versions stay."""
    require(actor, draft.environment.project_id, Role.EDITOR)
    draft.delete()


def delete_environment(*, actor: User, environment: Environment) -> None:
    """`DraftRefusedError` for one that a run or climb has used: results name its versions."""
    require(actor, environment.project_id, Role.EDITOR)
    try:
        with transaction.atomic():
            environment.delete()
    except models.ProtectedError as exc:
        names = sorted(
            {str(type(item)._meta.verbose_name_plural) for item in exc.protected_objects}
        )
        raise DraftRefusedError(
            f"{environment.name} stays: {', '.join(names)} name its versions, and their "
            "results would lose what they were measured on."
        ) from None
