"""The frame around every page: rail, breadcrumb, status bar, and the right to see the project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from orchestrator.projects.access import Seen, role_in
from orchestrator.projects.models import Project, Role, User
from orchestrator.projects.queries import projects_of
from orchestrator.web.health import Level, Sign, signs
from orchestrator.web.queries import RailCounts, rail_counts


@dataclass(frozen=True)
class Entry:
    """A line of the rail."""

    key: str
    word: str
    url: str
    count: int = 0
    is_minor: bool = False
    """Goes behind *More* at phone width."""
    count_means: str = "in progress"


@dataclass(frozen=True)
class Crumb:
    word: str
    url: str = ""
    copy: str = ""
    """What its copy button copies; no button when empty."""


@dataclass(frozen=True)
class Frame:
    project: Project
    role: Role
    projects: Sequence[Project]
    section: str
    entries: Sequence[Entry]
    crumbs: Sequence[Crumb]
    signs: Sequence[Sign]

    @property
    def can_edit(self) -> bool:
        return self.role in (Role.EDITOR, Role.ADMIN)

    @property
    def can_admin(self) -> bool:
        return self.role == Role.ADMIN


def entries(project_id: int, counts: RailCounts) -> list[Entry]:
    def url(name: str) -> str:
        return reverse(f"web:{name}", args=[project_id])

    return [
        Entry("find", "Search", url("event_search"), is_minor=True),
        Entry("overview", "Overview", url("overview")),
        Entry("environments", "Environments", url("environments")),
        Entry("runs", "Runs", url("runs"), counts.runs),
        Entry("rubrics", "Rubrics", url("rubrics"), is_minor=True),
        Entry(
            "review",
            "Review",
            url("review"),
            counts.review,
            is_minor=True,
            count_means="waiting for you",
        ),
        Entry(
            "optimise",
            "Optimise",
            url("searches"),
            counts.searches,
            is_minor=True,
            count_means="in progress or waiting for you",
        ),
        Entry("train", "Train", url("training"), counts.training, is_minor=True),
        Entry("ladder", "Ladder", url("climbs"), counts.climbs),
    ]


def alarm_signs(project_id: int, counts: RailCounts) -> list[Sign]:
    """What the watch over climbs has found and nobody has acknowledged."""
    if not counts.warnings:
        return []
    plural = "" if counts.warnings == 1 else "s"
    text = f"{counts.warnings} alarm{plural}: a rubric may be gamed"
    level: Level = "bad" if counts.pauses else "warn"
    return [Sign("watch", level, text, url=reverse("web:climbs", args=[project_id]))]


def page(
    request: HttpRequest,
    template: str,
    project: Project,
    section: str,
    crumbs: Sequence[Crumb],
    *,
    status: int = 200,
    standing: Seen | None = None,
    **context: Any,
) -> HttpResponse:
    """Renders a page in its frame. The caller has authorised the project.

    `standing`: what `project_for_page` read already.
    """
    role = standing.role if standing else role_in(request.user, project.pk)
    assert role is not None, "the view must have fetched the project through access"
    # Viewers see queues and review nothing.
    reviewer = request.user if isinstance(request.user, User) and role != Role.VIEWER else None
    counts = rail_counts(project.pk, reviewer)
    frame = Frame(
        project=project,
        role=role,
        projects=standing.projects if standing else list(projects_of(request.user)),
        section=section,
        entries=entries(project.pk, counts),
        crumbs=crumbs,
        signs=[*signs(), *alarm_signs(project.pk, counts)],
    )
    return render(request, template, {"frame": frame, "project": project, **context}, status=status)
