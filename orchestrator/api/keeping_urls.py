"""Addresses of exports and retention, below `projects/<id>/`, and of imports, below none."""

from __future__ import annotations

from django.urls import URLPattern, path

from orchestrator.api import archives, retention

KINDS = "<key:kept>"

urlpatterns: list[URLPattern] = [
    path("exports", archives.Exports.as_view(), name="exports"),
    path("exports/<id:export_id>", archives.ExportDetail.as_view(), name="export"),
    path("exports/<id:export_id>/cancel", archives.ExportCancel.as_view(), name="export_cancel"),
    path("exports/<id:export_id>/events", archives.ExportEvents.as_view(), name="export_events"),
    path("exports/<id:export_id>/file", archives.ExportFile.as_view(), name="export_file"),
    path("retention/rules", retention.Rules.as_view(), name="retention_rules"),
    path(f"retention/rules/{KINDS}", retention.RuleDetail.as_view(), name="retention_rule"),
    path("retention/looks", retention.Looks.as_view(), name="retention_looks"),
    path("retention/looks/<id:look_id>", retention.LookDetail.as_view(), name="retention_look"),
    path(
        "retention/looks/<id:look_id>/events",
        retention.LookEvents.as_view(),
        name="retention_look_events",
    ),
    path("retention/marked", retention.Marked.as_view(), name="retention_marked"),
]
of_no_project: list[URLPattern] = [
    path("imports", archives.Imports.as_view(), name="imports"),
    path("imports/<id:import_id>", archives.ImportDetail.as_view(), name="import"),
    path("imports/<id:import_id>/cancel", archives.ImportCancel.as_view(), name="import_cancel"),
    path("imports/<id:import_id>/events", archives.ImportEvents.as_view(), name="import_events"),
]
