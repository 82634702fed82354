"""Addresses of environments that are written in the browser, below `…/environments/`.

What belongs to no environment is below `-/`, which no slug can be.
"""

from __future__ import annotations

from django.urls import path

from orchestrator.web.views.authoring import create, drafts, publishing, tasks, uploads, versions

urlpatterns = [
    path("-/new/", create.environment_new, name="environment_new"),
    path("-/new/<slug:kind>/", create.environment_create, name="environment_create"),
    path("-/registrations/<int:registration_id>/", create.registration_detail, name="registration"),
    path(
        "-/registrations/<int:registration_id>/cancel/",
        create.registration_cancel,
        name="registration_cancel",
    ),
    path("<slug:slug>/compare/", versions.environment_compare, name="environment_compare"),
    path("<slug:slug>/export/", versions.environment_export, name="environment_export"),
    path("<slug:slug>/describe/", versions.environment_describe, name="environment_describe"),
    path("<slug:slug>/delete/", versions.environment_delete, name="environment_delete"),
    path("<slug:slug>/draft/", tasks.draft_tasks, name="draft"),
    path("<slug:slug>/draft/start/", drafts.draft_start, name="draft_start"),
    path("<slug:slug>/draft/discard/", drafts.draft_discard, name="draft_discard"),
    path("<slug:slug>/draft/undo/", drafts.draft_undo, name="draft_undo"),
    path("<slug:slug>/draft/settings/", drafts.draft_settings, name="draft_settings"),
    path("<slug:slug>/draft/change/", tasks.draft_tasks_change, name="draft_tasks_change"),
    path("<slug:slug>/draft/split/", tasks.draft_split, name="draft_split"),
    path("<slug:slug>/draft/tasks/", tasks.draft_task_new, name="draft_task_new"),
    path("<slug:slug>/draft/tasks/<str:key>/", tasks.draft_task, name="draft_task"),
    path("<slug:slug>/draft/upload/", uploads.draft_upload, name="draft_upload"),
    path(
        "<slug:slug>/draft/upload/<int:upload_id>/", uploads.upload_preview, name="upload_preview"
    ),
    path(
        "<slug:slug>/draft/upload/<int:upload_id>/errors.csv",
        uploads.upload_errors,
        name="upload_errors",
    ),
    path("<slug:slug>/draft/publish/", publishing.draft_publish, name="draft_publish"),
]
