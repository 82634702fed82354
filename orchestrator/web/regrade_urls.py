"""Addresses of previews, golden cases, back-tests and re-grades, below `p/<project>/`."""

from __future__ import annotations

from django.urls import path

from orchestrator.web.views import regrades, rubric_golden, rubric_preview

urlpatterns = [
    path("rubrics/<int:rubric_id>/preview/", rubric_preview.rubric_preview, name="rubric_preview"),
    path("rubrics/<int:rubric_id>/golden/", rubric_golden.rubric_golden, name="rubric_golden"),
    path("rubrics/<int:rubric_id>/golden/add/", rubric_golden.golden_add, name="golden_add"),
    path(
        "rubrics/<int:rubric_id>/golden/<int:case_id>/remove/",
        rubric_golden.golden_remove,
        name="golden_remove",
    ),
    path(
        "rubrics/<int:rubric_id>/back-tests/",
        regrades.rubric_backtests,
        name="rubric_backtests",
    ),
    path(
        "rubrics/<int:rubric_id>/back-tests/start/",
        regrades.backtest_start,
        name="backtest_start",
    ),
    path("rubrics/<int:rubric_id>/re-grade/start/", regrades.regrade_start, name="regrade_start"),
    path("runs/<int:run_id>/re-grade/", regrades.run_regrade, name="run_regrade"),
    path("re-grades/<int:regrade_id>/", regrades.regrade_page, name="regrade"),
    path("re-grades/<int:regrade_id>/cancel/", regrades.regrade_cancel, name="regrade_cancel"),
    path("re-grades/<int:regrade_id>/resume/", regrades.regrade_resume, name="regrade_resume"),
]
