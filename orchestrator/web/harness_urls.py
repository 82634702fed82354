"""Addresses of the library of harnesses, below `p/<project>/harnesses/`."""

from __future__ import annotations

from django.urls import path

from orchestrator.web.views import harness_changes, harnesses, releases

urlpatterns = [
    path("", harnesses.harness_list, name="harnesses"),
    path("import/", harness_changes.harness_import, name="harness_import"),
    path("compare/", harnesses.harness_compare, name="harness_compare"),
    path("releases/", releases.release_list, name="releases"),
    path(
        "releases/<int:release_id>/roll-back/", releases.release_roll_back, name="release_roll_back"
    ),
    path("<int:harness_id>/", harnesses.harness_page, name="harness"),
    path("<int:harness_id>/export.zip", harnesses.harness_export, name="harness_export"),
    path("<int:harness_id>/edit/", harness_changes.harness_edit, name="harness_edit"),
    path("<int:harness_id>/label/", harness_changes.harness_label, name="harness_label"),
    path("<int:harness_id>/release/", releases.harness_release, name="harness_release"),
    path("<int:before_id>/diff/<int:after_id>/", harnesses.harness_diff, name="harness_diff"),
]
