"""Runs, their rollouts, and gates: lists under one entry of the rail."""

from __future__ import annotations

from django.urls import reverse

from orchestrator.web.environment_tabs import Tab

TABS: tuple[tuple[str, str], ...] = (
    ("Runs", "web:runs"),
    ("Rollouts", "web:rollouts"),
    ("Gates", "web:gates"),
)


def tabs_of(project_id: int, current: str) -> list[Tab]:
    return [Tab(label, reverse(name, args=[project_id]), name == current) for label, name in TABS]
