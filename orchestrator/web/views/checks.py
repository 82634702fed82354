"""`Check environment`: the report of a version, live while it is made, and its history."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.environments.conformance.queries import Line, badge_of, checks_of, report_of
from orchestrator.environments.conformance.services import (
    OPEN_STATES,
    cancel_check,
    check_environment,
)
from orchestrator.environments.models import EnvironmentCheck
from orchestrator.projects.access import project_for_edit
from orchestrator.web import access, queries
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page

COUNTED = (
    ("fail", "failed"),
    ("warn", "warnings"),
    ("pass", "passed"),
    ("error", "could not be told"),
    ("skip", "not applicable"),
)


@login_required
@require_safe
def environment_checks(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    environment = access.environment_for_view(request.user, project_id, slug)
    versions = queries.versions_of(environment.pk)
    wanted = request.GET.get("version", "")
    version = next(
        (v for v in versions if str(v.number) == wanted), versions[0] if versions else None
    )
    checks = checks_of(version.pk) if version else []
    asked = request.GET.get("check", "")
    shown = next((c for c in checks if str(c.pk) == asked), checks[0] if checks else None)
    lines = report_of(shown) if shown else []
    return page(
        request,
        "web/checks.html",
        environment.project,
        "environments",
        [
            Crumb("Environments", reverse("web:environments", args=[project_id])),
            Crumb(environment.name, reverse("web:environment", args=[project_id, slug])),
            Crumb("Checks"),
        ],
        environment=environment,
        tabs=tabs_of(environment, "web:environment_checks"),
        versions=versions,
        version=version,
        badge=badge_of(version) if version else None,
        checks=checks,
        shown=shown,
        is_running=shown is not None and shown.state in OPEN_STATES,
        lines=[(line, measures(line)) for line in ordered(lines, shown)],
        counts=counts(shown),
        n_done=sum(line.result is not None for line in lines),
    )


def ordered(lines: list[Line], check: EnvironmentCheck | None) -> list[Line]:
    """What needs a reader first; as they come while the check is made."""
    if check is None or check.state in OPEN_STATES:
        return lines
    rank = {status: position for position, (status, _) in enumerate(COUNTED)}
    return sorted(lines, key=lambda line: rank[line.result.status] if line.result else -1)


def counts(check: EnvironmentCheck | None) -> list[tuple[str, str, int]]:
    """(status, words, number) in the order of importance."""
    found = Counter(result.status for result in check.results.all()) if check else Counter()
    return [(status, words, found[status]) for status, words in COUNTED]


def measures(line: Line) -> list[tuple[str, str]]:
    """What was measured, as (name, value) for people."""
    measured: Mapping[str, Any] = line.result.measured if line.result else {}
    return [
        (
            name.replace("_", " "),
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
        )
        for name, value in measured.items()
        if value not in (None, [], {}, "")
    ]


@login_required
@require_POST
def check_start(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    project_for_edit(request.user, project_id)
    environment = access.environment_for_view(request.user, project_id, slug)
    versions = queries.versions_of(environment.pk)
    wanted = request.POST.get("version", "")
    version = next((v for v in versions if str(v.number) == wanted), None)
    if version is None:
        messages.error(request, "There is no such version to check.")
        return redirect("web:environment_checks", project_id, slug)
    check_environment(actor=request.user, version=version)  # type: ignore[arg-type] # login_required
    address = reverse("web:environment_checks", args=[project_id, slug])
    return redirect(f"{address}?version={version.number}")


@login_required
@require_POST
def check_cancel(request: HttpRequest, project_id: int, slug: str, check_id: int) -> HttpResponse:
    check = access.check_for_edit(request.user, project_id, slug, check_id)
    cancel_check(actor=request.user, check=check)  # type: ignore[arg-type] # login_required
    messages.success(request, "The check is being cancelled. What it found stays.")
    address = reverse("web:environment_checks", args=[project_id, slug])
    return redirect(f"{address}?version={check.version.number}")
