"""Addresses of environments, their drafts and what is tried on them, below `projects/<id>/`."""

from __future__ import annotations

from django.urls import URLPattern, path

from orchestrator.api import (
    checks,
    draft_tasks,
    draft_uploads,
    drafts,
    environments,
    registrations,
    tryouts,
)
from orchestrator.api.addresses import actions

DRAFT = "environments/<slug:slug>/draft"

urlpatterns: list[URLPattern] = [
    path("environments/written", drafts.WrittenEnvironments.as_view(), name="written_environments"),
    path(
        "environments/folders",
        environments.EnvironmentFolders.as_view(),
        name="environment_folders",
    ),
    path("environments", environments.Environments.as_view(), name="environments"),
    path(
        "environments/connections",
        environments.EnvironmentConnections.as_view(),
        name="environment_connections",
    ),
    path(
        "environments/<slug:slug>",
        environments.EnvironmentDetail.as_view(),
        name="environment",
    ),
    path(
        "environments/<slug:slug>/versions",
        environments.EnvironmentVersions.as_view(),
        name="environment_versions",
    ),
    path(
        "environments/<slug:slug>/versions/<id:number>",
        environments.EnvironmentVersionDetail.as_view(),
        name="environment_version",
    ),
    path(
        "environments/<slug:slug>/versions/<id:number>/tasks",
        environments.EnvironmentTasks.as_view(),
        name="environment_tasks",
    ),
    path(
        "environments/<slug:slug>/versions/<id:number>/checks",
        checks.EnvironmentChecks.as_view(),
        name="environment_checks",
    ),
    path(
        "checks/<id:check_id>",
        checks.EnvironmentCheckDetail.as_view(),
        name="environment_check",
    ),
    path(
        "checks/<id:check_id>/events",
        checks.EnvironmentCheckEvents.as_view(),
        name="environment_check_events",
    ),
    *actions("checks", "check", checks.EnvironmentCheckAction, name="environment_check"),
    path(DRAFT, drafts.EnvironmentDraftDetail.as_view(), name="environment_draft"),
    path(f"{DRAFT}/undo", drafts.EnvironmentDraftUndo.as_view(), name="environment_draft_undo"),
    path(
        f"{DRAFT}/publish",
        drafts.EnvironmentDraftPublish.as_view(),
        name="environment_draft_publish",
    ),
    path(f"{DRAFT}/tasks", draft_tasks.DraftTasks.as_view(), name="draft_tasks"),
    path(f"{DRAFT}/change", draft_tasks.DraftTasksChange.as_view(), name="draft_tasks_change"),
    path(f"{DRAFT}/split", draft_tasks.DraftSplit.as_view(), name="draft_split"),
    path(f"{DRAFT}/tasks/<key:key>", draft_tasks.DraftTaskDetail.as_view(), name="draft_task"),
    path(f"{DRAFT}/uploads", draft_uploads.DraftUploads.as_view(), name="draft_uploads"),
    path(
        f"{DRAFT}/uploads/<id:upload_id>",
        draft_uploads.DraftUploadDetail.as_view(),
        name="draft_upload",
    ),
    path(
        f"{DRAFT}/uploads/<id:upload_id>/apply",
        draft_uploads.DraftUploadApply.as_view(),
        name="draft_upload_apply",
    ),
    path("registrations", registrations.Registrations.as_view(), name="registrations"),
    path(
        "registrations/<id:registration_id>",
        registrations.RegistrationDetail.as_view(),
        name="registration",
    ),
    path(
        "registrations/<id:registration_id>/events",
        registrations.RegistrationEvents.as_view(),
        name="registration_events",
    ),
    *actions("registrations", "registration", registrations.RegistrationAction),
    path("tryouts", tryouts.Tryouts.as_view(), name="tryouts"),
    path(
        "environments/<slug:slug>/versions/<id:number>/tryouts",
        tryouts.VersionTryouts.as_view(),
        name="version_tryouts",
    ),
    path("tryouts/<id:tryout_id>", tryouts.TryoutDetail.as_view(), name="tryout"),
    path("tryouts/<id:tryout_id>/events", tryouts.TryoutEvents.as_view(), name="tryout_events"),
    path("tryouts/<id:tryout_id>/steps", tryouts.TryoutSteps.as_view(), name="tryout_steps"),
    path("tryouts/<id:tryout_id>/reset", tryouts.TryoutResets.as_view(), name="tryout_reset"),
    path("tryouts/<id:tryout_id>/undo", tryouts.TryoutUndos.as_view(), name="tryout_undo"),
    path("tryouts/<id:tryout_id>/rubric", tryouts.TryoutRubrics.as_view(), name="tryout_rubric"),
    path(
        "tryouts/<id:tryout_id>/reference",
        tryouts.TryoutReference.as_view(),
        name="tryout_reference",
    ),
    *actions("tryouts", "tryout", tryouts.TryoutAction),
]
