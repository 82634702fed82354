"""What people ask of sources: register one, stop a registration.

A registration is a row with a stream and a job. The job (`registering`) installs or pulls, starts a
server, resets an episode and makes the environment. Its events: `registration.step`, and at the end
`registration.ended`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from django.conf import settings
from django.db import transaction

from orchestrator.environments.errors import SourceError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import (
    Environment,
    EnvironmentKind,
    RegistrationState,
    SourceRegistration,
)
from orchestrator.environments.packages.registering import end_registration, slug_of
from orchestrator.environments.resources import Resources
from orchestrator.events.services import create_stream
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User

KINDS_BY_REGISTRATION = (EnvironmentKind.PACKAGE, EnvironmentKind.DOCKER, EnvironmentKind.ACA)
"""Those whose server must be prepared and proved before there is an environment."""


@runtime_checkable
class LimitsResources(Protocol):
    """A kind that cannot give every kind of resources."""

    def check_resources(self, source: Mapping[str, Any], resources: Resources) -> None:
        """`SourceError` that names what it cannot enforce."""


def register_source(
    *,
    actor: User,
    project: Project,
    name: str,
    kind: str,
    source: Mapping[str, Any],
    resources: Mapping[str, Any] | None = None,
    description: str = "",
) -> SourceRegistration:
    """Queues the job that makes an environment of `source`; `source` as the kind's module says.

    Raises:
        SourceError: the name is taken, or a field of source or resources is not usable; names it.
    """
    require(actor, project, Role.EDITOR)
    name = name.strip()
    if not name or len(name) > 120:
        raise SourceError("name: an environment needs a name of at most 120 characters")
    if kind not in KINDS_BY_REGISTRATION:
        raise SourceError(f"kind: {kind} is not one of {', '.join(KINDS_BY_REGISTRATION)}")
    if Environment.objects.filter(project=project, slug=slug_of(name)).exists():
        raise SourceError(f"name: the project already has an environment named {name}")
    try:
        KINDS[kind].check_source(source)
    except ValueError as exc:
        raise SourceError(str(exc)) from exc
    try:
        usable = Resources.from_json(resources or {})
    except (TypeError, ValueError) as exc:
        raise SourceError(f"resources: {exc}") from exc
    chosen = KINDS[kind]
    if isinstance(chosen, LimitsResources):
        chosen.check_resources(source, usable)
    for field in ("path", "data"):
        if source.get(field):
            check_readable(actor, field, Path(str(source[field])))
    with transaction.atomic():
        registration = SourceRegistration.objects.create(
            project=project,
            stream=create_stream(project=project, kind="registration"),
            name=name,
            kind=kind,
            source=dict(source),
            resources=usable.as_json(),
            description=description,
            created_by=actor,
        )
        registration.job = jobs.enqueue(
            kind="environments.register",
            spec={"registration_id": registration.pk},
            key=f"registration-{registration.pk}",
        )
        registration.save(update_fields=["job"])
    return registration


def cancel_registration(*, actor: User, registration: SourceRegistration) -> None:
    """Stops it; what was installed half-way is removed. One that has ended stays as it is."""
    require(actor, registration.project_id, Role.EDITOR)
    if registration.has_ended:
        return
    if registration.job is not None:
        jobs.cancel(job=registration.job)
    if SourceRegistration.objects.filter(
        pk=registration.pk, state=RegistrationState.QUEUED
    ).exists():
        end_registration(
            registration=registration, state=RegistrationState.CANCELLED, message="Cancelled."
        )


def check_readable(actor: User, field: str, folder: Path) -> None:
    """Whether the actor may make the server read a folder of this machine.

    Its content becomes readable for the environment's code, so an editor of a project may name only
    what the operator has put below one of `PACKAGE_FOLDERS`; an operator (superuser) any.
    """
    resolved = folder.expanduser().resolve()
    data = Path(settings.DATA_DIR).resolve()
    if resolved == data or data in resolved.parents or resolved in data.parents:
        raise SourceError(f"{field}: {folder} holds, or lies in, this server's own data")
    allowed = [Path(root).resolve() for root in settings.PACKAGE_FOLDERS]
    if actor.is_superuser or any(root in (resolved, *resolved.parents) for root in allowed):
        return
    shown = ", ".join(map(str, allowed)) or "none"
    raise SourceError(
        f"{field}: folders of the server may be registered by an operator, or from below "
        f"SWITCHBACK_PACKAGE_FOLDERS (now: {shown})"
    )
