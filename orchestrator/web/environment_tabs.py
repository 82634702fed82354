"""The parts of an environment's page, each with an address of its own."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from orchestrator.environments.models import Environment


@dataclass(frozen=True)
class Tab:
    label: str
    url: str
    is_current: bool
    is_for_editors: bool = False


TABS: tuple[tuple[str, str], ...] = (
    ("Tasks", "web:environment"),
    ("Try", "web:environment_try"),
    ("Checks", "web:environment_checks"),
    ("Curriculum", "web:environment_curriculum"),
    ("Network", "web:environment_network"),
    ("Compare", "web:environment_compare"),
    ("Edit", "web:draft"),
)
"""Label and URL name; each takes the project's id and the environment's slug."""

FOR_EDITORS = ("web:draft",)


def tabs_of(environment: Environment, current: str) -> list[Tab]:
    """`current`: the URL name of the page that is shown."""
    arguments = [environment.project_id, environment.slug]
    return [
        Tab(label, reverse(name, args=arguments), name == current, name in FOR_EDITORS)
        for label, name in TABS
    ]
