from __future__ import annotations

from django.urls import path, re_path

from orchestrator.web.views import archives, retention

urlpatterns = [
    path("archives/", archives.archives, name="archives"),
    path("archives/export/", archives.export_start, name="export_start"),
    path("archives/import/", archives.project_import, name="project_import"),
    path("archives/<int:export_id>/file/", archives.export_file, name="export_file"),
    re_path(
        r"^archives/(?P<export_id>\d+)/(?P<action>cancel|remove)/$",
        archives.export_action,
        name="export_action",
    ),
    path("retention/", retention.retention, name="retention"),
    path("retention/rule/", retention.retention_rule, name="retention_rule"),
    path("retention/look/", retention.retention_look, name="retention_look"),
    path("retention/keep/", retention.retention_keep, name="retention_keep"),
    path("retention/let-go/", retention.retention_let_go, name="retention_let_go"),
]
