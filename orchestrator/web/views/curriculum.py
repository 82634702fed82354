"""What samplers know of an environment: rates, signal, draws and cost, by task or by group."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.environments.curriculum.queries import (
    SORTS,
    EstimateTable,
    curricula_of,
    draws_of,
    estimate_table,
)
from orchestrator.environments.models import Curriculum
from orchestrator.web import access, queries
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page

ROWS = 300
"""More tasks than this are for the view by group."""
_OF_CLIMB = re.compile(r"climb-(\d+)-(train|search)")
_ROLE_WORDS = {"train": "training", "search": "search"}
COLUMNS = (
    ("name", "Task"),
    ("rate", "Success rate"),
    ("signal", "Signal"),
    ("share", "Share"),
    ("draws", "Drawn"),
    ("rollouts", "Rollouts"),
    ("cost", "Tokens"),
)


@dataclass(frozen=True)
class Column:
    key: str
    label: str
    sort: str
    """What a click on its head sorts by."""
    order: str
    """`ascending`, `descending` or `none`."""


@dataclass(frozen=True)
class Named:
    """A curriculum in the words of whoever draws from it."""

    curriculum: Curriculum
    name: str
    climb_id: int | None


@login_required
@require_safe
def environment_curriculum(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    environment = access.environment_for_view(request.user, project_id, slug)
    versions = queries.versions_of(environment.pk)
    wanted = request.GET.get("version", "")
    version = next(
        (v for v in versions if str(v.number) == wanted), versions[0] if versions else None
    )
    curricula = [named(c) for c in curricula_of(version.pk)] if version else []
    asked = request.GET.get("curriculum", "")
    shown = next(
        (c for c in curricula if str(c.curriculum.pk) == asked), curricula[0] if curricula else None
    )
    by = "group" if request.GET.get("by") == "group" else "task"
    sort = request.GET.get("sort", "")
    sort = sort if sort.removeprefix("-") in SORTS else "-share"
    table = (
        estimate_table(shown.curriculum, by=by, sort=sort, limit=ROWS)
        if shown
        else EstimateTable([], 0)
    )
    return page(
        request,
        "web/curriculum.html",
        environment.project,
        "environments",
        [
            Crumb("Environments", reverse("web:environments", args=[project_id])),
            Crumb(environment.name, reverse("web:environment", args=[project_id, slug])),
            Crumb("Curriculum"),
        ],
        environment=environment,
        tabs=tabs_of(environment, "web:environment_curriculum"),
        versions=versions,
        version=version,
        curricula=curricula,
        shown=shown,
        by=by,
        sort=sort,
        columns=columns(sort, by),
        rows=table.rows,
        n_rows=table.n_rows,
        draws=draws_of(shown.curriculum) if shown else [],
    )


def named(curriculum: Curriculum) -> Named:
    found = _OF_CLIMB.fullmatch(curriculum.key)
    if found is None:
        return Named(curriculum, curriculum.key, None)
    climb_id = int(found[1])
    return Named(curriculum, f"climb {climb_id}, {_ROLE_WORDS[found[2]]}", climb_id)


def columns(sort: str, by: str) -> list[Column]:
    """Heads of the table; a second click turns the order round."""
    found = []
    for key, label in COLUMNS:
        is_now = sort.removeprefix("-") == key
        is_down = sort.startswith("-")
        order = ("descending" if is_down else "ascending") if is_now else "none"
        # Numbers are asked for from the top, names from the start.
        first = key if key == "name" else f"-{key}"
        following = (key if is_down else f"-{key}") if is_now else first
        found.append(
            Column(key, "Group" if key == "name" and by == "group" else label, following, order)
        )
    return found
