"""Which harness a project works with in an environment: released on evidence, rolled back at once.

The newest release that was not rolled back counts. Rolling back makes no new row: the one before
counts again, with the evidence that it had.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from optimizer.models import Comparison, HarnessVersion, Release, Search
from orchestrator.environments.models import Environment
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User


class ReleaseRefused(ValueError):
    """It is not what counts at present; the message says what does."""


def release(
    *,
    actor: User,
    environment: Environment,
    harness: HarnessVersion,
    search: Search | None = None,
    certificate: Comparison | None = None,
    note: str = "",
) -> Release:
    """Also without a search: a person may release any harness of the project, on no evidence."""
    require(actor, environment.project_id, Role.EDITOR)
    if harness.project_id != environment.project_id:
        raise ReleaseRefused("The harness is of another project.")
    with transaction.atomic():
        return Release.objects.create(
            project_id=environment.project_id,
            environment=environment,
            harness=harness,
            search=search,
            certificate=certificate,
            previous=current(environment),
            note=note.strip(),
            approved_by=actor,
        )


def roll_back(*, actor: User, release: Release) -> Release | None:
    """What counts from now on; None: nothing is released. Raises ReleaseRefused."""
    require(actor, release.project_id, Role.EDITOR)
    with transaction.atomic():
        counts = current(release.environment)
        if counts is None or counts.pk != release.pk:
            raise ReleaseRefused(
                f"Release {release.pk} is not what counts; "
                + (f"release {counts.pk} does." if counts else "nothing is released.")
            )
        changed = Release.objects.filter(pk=release.pk, rolled_back_at=None).update(
            rolled_back_at=timezone.now(), rolled_back_by=actor
        )
        if not changed:
            raise ReleaseRefused(f"Release {release.pk} was rolled back by somebody else.")
    return current(release.environment)


def current(environment: Environment) -> Release | None:
    return _of(environment).filter(rolled_back_at=None).first()


def counting_in(project_id: int) -> set[int]:
    """The releases that count, one for each environment that has any. One query."""
    rows = Release.objects.filter(project_id=project_id, rolled_back_at=None).order_by()
    return set(
        rows.values("environment_id").annotate(newest=Max("pk")).values_list("newest", flat=True)
    )


def history(environment: Environment) -> list[Release]:
    """Newest first."""
    return list(
        _of(environment).select_related(
            "harness", "search", "certificate", "approved_by", "rolled_back_by"
        )
    )


def _of(environment: Environment) -> QuerySet[Release]:
    return Release.objects.filter(environment=environment).order_by("-id")
