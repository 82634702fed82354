"""Addresses of the pages on which rubrics are written, below `p/<project>/rubrics/`."""

from __future__ import annotations

from django.urls import path

from orchestrator.web.views import (
    redteam,
    rubric_editor,
    rubric_new,
    rubric_publish,
    rubric_suggest,
    rubric_versions,
)

urlpatterns = [
    path("<int:rubric_id>/red-team/", redteam.rubric_redteam, name="rubric_redteam"),
    path("<int:rubric_id>/red-team/start/", redteam.redteam_start, name="redteam_start"),
    path(
        "<int:rubric_id>/red-team/<int:report_id>/cancel/",
        redteam.redteam_cancel,
        name="redteam_cancel",
    ),
    path(
        "<int:rubric_id>/red-team/<int:report_id>/golden/",
        redteam.redteam_golden,
        name="redteam_golden",
    ),
    path("-/new/", rubric_new.rubric_new, name="rubric_new"),
    path("<int:rubric_id>/edit/", rubric_editor.rubric_edit, name="rubric_edit"),
    path("<int:rubric_id>/edit/save/", rubric_editor.rubric_save, name="rubric_save"),
    path(
        "<int:rubric_id>/edit/start/", rubric_editor.rubric_draft_start, name="rubric_draft_start"
    ),
    path(
        "<int:rubric_id>/edit/discard/",
        rubric_editor.rubric_draft_discard,
        name="rubric_draft_discard",
    ),
    path("<int:rubric_id>/edit/suggest/", rubric_suggest.rubric_suggest, name="rubric_suggest"),
    path(
        "<int:rubric_id>/edit/suggest/<int:suggestion_id>/",
        rubric_suggest.rubric_suggestion,
        name="rubric_suggestion",
    ),
    path("<int:rubric_id>/publish/", rubric_publish.rubric_publish, name="rubric_publish"),
    path("<int:rubric_id>/versions/", rubric_versions.rubric_versions, name="rubric_versions"),
    path("<int:rubric_id>/json/", rubric_versions.rubric_json, name="rubric_json"),
    path("<int:rubric_id>/export.json", rubric_versions.rubric_export, name="rubric_export"),
]
