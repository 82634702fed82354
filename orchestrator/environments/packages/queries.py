"""How far registrations are."""

from __future__ import annotations

from django.db.models import QuerySet

from orchestrator.environments.models import RegistrationState, SourceRegistration

OPEN = (RegistrationState.QUEUED, RegistrationState.RUNNING)


def list_registrations(project_id: int) -> QuerySet[SourceRegistration]:
    """Those of a project, newest first: the open ones, and the ones that failed."""
    return SourceRegistration.objects.filter(project_id=project_id).select_related(
        "version__environment", "created_by"
    )


def registrations_in(project_id: int) -> QuerySet[SourceRegistration]:
    """With the jobs that prepare them."""
    return list_registrations(project_id).select_related("project", "job")


def open_registrations(project_id: int) -> QuerySet[SourceRegistration]:
    return list_registrations(project_id).filter(state__in=OPEN)
