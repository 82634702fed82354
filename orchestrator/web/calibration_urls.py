"""Addresses of calibration, below `p/<project>/rubrics/<rubric>/calibration/`."""

from __future__ import annotations

from django.urls import path, re_path

from orchestrator.web.views import alignment, calibration, calibration_compare

_CRITERION = r"(?P<criterion>[a-z0-9][a-z0-9_-]{0,63})"
urlpatterns = [
    path("", calibration.rubric_calibration, name="rubric_calibration"),
    path("-/bar/", calibration.calibration_bar, name="calibration_bar"),
    path("-/policy/", calibration.calibration_policy, name="calibration_policy"),
    path("-/queue/", calibration.calibration_enqueue, name="calibration_enqueue"),
    path("-/align/", alignment.alignment_start, name="alignment_start"),
    path("-/align/<int:alignment_id>/cancel/", alignment.alignment_cancel, name="alignment_cancel"),
    path("-/align/<int:alignment_id>/take/", alignment.alignment_take, name="alignment_take"),
    re_path(
        rf"^{_CRITERION}/$", calibration_compare.calibration_compare, name="calibration_compare"
    ),
    re_path(
        rf"^{_CRITERION}/label/$", calibration_compare.calibration_label, name="calibration_label"
    ),
]
