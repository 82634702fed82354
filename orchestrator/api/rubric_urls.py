"""Addresses of rubrics and of what is done with them, below `projects/<id>/`."""

from __future__ import annotations

from django.urls import URLPattern, path, register_converter

from orchestrator.api import (
    alignments,
    calibration,
    golden,
    previews,
    redteams,
    regrades,
    rubrics,
    suggestions,
)
from orchestrator.api.addresses import CriterionConverter, actions

register_converter(CriterionConverter, "criterion")

urlpatterns: list[URLPattern] = [
    path("rubrics", rubrics.Rubrics.as_view(), name="rubrics"),
    path("rubrics/<id:rubric_id>", rubrics.RubricDetail.as_view(), name="rubric"),
    path(
        "rubrics/<id:rubric_id>/versions",
        rubrics.RubricVersions.as_view(),
        name="rubric_versions",
    ),
    path(
        "rubrics/<id:rubric_id>/versions/<id:number>",
        rubrics.RubricVersionDetail.as_view(),
        name="rubric_version",
    ),
    path(
        "rubrics/<id:rubric_id>/draft",
        rubrics.RubricDraftDetail.as_view(),
        name="rubric_draft",
    ),
    path(
        "rubrics/<id:rubric_id>/draft/publish",
        rubrics.RubricPublish.as_view(),
        name="rubric_publish",
    ),
    path("re-grades", regrades.Regrades.as_view(), name="regrades"),
    path("re-grades/<id:regrade_id>", regrades.RegradeDetail.as_view(), name="regrade"),
    path(
        "re-grades/<id:regrade_id>/events",
        regrades.RegradeEvents.as_view(),
        name="regrade_events",
    ),
    path(
        "re-grades/<id:regrade_id>/scores",
        regrades.RegradeScores.as_view(),
        name="regrade_scores",
    ),
    *actions("re-grades", "regrade", regrades.RegradeAction),
    path("rubrics/<id:rubric_id>/preview", previews.RubricPreview.as_view(), name="rubric_preview"),
    path(
        "rubrics/<id:rubric_id>/back-tests", regrades.Backtests.as_view(), name="rubric_backtests"
    ),
    path("runs/<id:run_id>/retry-errors", regrades.RunRetry.as_view(), name="run_retry"),
    path("rubrics/<id:rubric_id>/golden", golden.GoldenCases.as_view(), name="golden_cases"),
    path("rubrics/<id:rubric_id>/golden/try", golden.GoldenTrial.as_view(), name="golden_try"),
    path("golden/<id:case_id>", golden.GoldenDetail.as_view(), name="golden_case"),
    path("rubrics/<id:rubric_id>/attacks", redteams.Attacks.as_view(), name="attacks"),
    path("attacks/<id:report_id>", redteams.AttackDetail.as_view(), name="attack"),
    path("attacks/<id:report_id>/events", redteams.AttackEvents.as_view(), name="attack_events"),
    path("attacks/<id:report_id>/golden", redteams.AttackGolden.as_view(), name="attack_golden"),
    *actions("attacks", "report", redteams.AttackAction, name="attack"),
    path("calibration/bar", calibration.CalibrationBar.as_view(), name="calibration_bar"),
    path(
        "rubrics/<id:rubric_id>/calibration",
        calibration.CalibrationDetail.as_view(),
        name="calibration",
    ),
    path(
        "rubrics/<id:rubric_id>/calibration/labels",
        calibration.CalibrationLabels.as_view(),
        name="calibration_labels",
    ),
    path(
        "rubrics/<id:rubric_id>/calibration/queue",
        calibration.CalibrationLabelling.as_view(),
        name="calibration_queue",
    ),
    path(
        "rubrics/<id:rubric_id>/criteria/<criterion:criterion>/policy",
        calibration.CriterionPolicyDetail.as_view(),
        name="criterion_policy",
    ),
    path("rubrics/<id:rubric_id>/alignments", alignments.Alignments.as_view(), name="alignments"),
    path("alignments/<id:alignment_id>", alignments.AlignmentDetail.as_view(), name="alignment"),
    path(
        "alignments/<id:alignment_id>/events",
        alignments.AlignmentEvents.as_view(),
        name="alignment_events",
    ),
    path(
        "alignments/<id:alignment_id>/take",
        alignments.AlignmentTake.as_view(),
        name="alignment_take",
    ),
    *actions("alignments", "alignment", alignments.AlignmentAction),
    path(
        "rubrics/<id:rubric_id>/suggestions", suggestions.Suggestions.as_view(), name="suggestions"
    ),
    path(
        "suggestions/<id:suggestion_id>", suggestions.SuggestionDetail.as_view(), name="suggestion"
    ),
    path(
        "suggestions/<id:suggestion_id>/events",
        suggestions.SuggestionEvents.as_view(),
        name="suggestion_events",
    ),
    path(
        "suggestions/<id:suggestion_id>/settle",
        suggestions.SuggestionSettle.as_view(),
        name="suggestion_settle",
    ),
    *actions("suggestions", "suggestion", suggestions.SuggestionAction),
]
