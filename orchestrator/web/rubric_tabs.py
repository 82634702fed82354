"""The parts of a rubric's page, each with an address of its own."""

from __future__ import annotations

from django.urls import reverse

from orchestrator.web.environment_tabs import Tab
from rubrics.models import Rubric

TABS: tuple[tuple[str, str], ...] = (
    ("Criteria", "web:rubric"),
    ("Edit", "web:rubric_edit"),
    ("Preview", "web:rubric_preview"),
    ("Golden", "web:rubric_golden"),
    ("Back-tests", "web:rubric_backtests"),
    ("Calibration", "web:rubric_calibration"),
    ("Red team", "web:rubric_redteam"),
    ("Versions", "web:rubric_versions"),
    ("JSON", "web:rubric_json"),
)
"""Label and URL name; each takes the project's id and the rubric's id."""

FOR_EDITORS = ("web:rubric_edit",)


def tabs_of(rubric: Rubric, current: str) -> list[Tab]:
    """`current`: the URL name of the page that is shown."""
    arguments = [rubric.project_id, rubric.pk]
    return [
        Tab(label, reverse(name, args=arguments), name == current, name in FOR_EDITORS)
        for label, name in TABS
    ]
