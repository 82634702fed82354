"""The parts of Optimise, each with an address of its own."""

from __future__ import annotations

from django.urls import reverse

from orchestrator.web.environment_tabs import Tab

TABS: tuple[tuple[str, str], ...] = (
    ("Searches", "web:searches"),
    ("Harnesses", "web:harnesses"),
    ("Releases", "web:releases"),
)
"""Label and URL name; each takes the project's id."""


def tabs_of(project_id: int, current: str) -> list[Tab]:
    """`current`: the URL name of the page that is shown."""
    return [Tab(label, reverse(name, args=[project_id]), name == current) for label, name in TABS]
