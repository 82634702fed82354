"""The Network page of an environment: what its servers may reach, and what they asked for."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.environments.egress import EgressPage, egress_page
from orchestrator.environments.models import EnvironmentKind
from orchestrator.environments.resources import Resources
from orchestrator.web import access, queries
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page

ACTIONS = (("", "all"), ("allow", "allowed"), ("deny", "denied"))
MAX_TEXT = 80


@login_required
@require_safe
def environment_network(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    environment = access.environment_for_view(request.user, project_id, slug)
    versions = queries.versions_of(environment.pk)
    wanted = request.GET.get("version", "")
    version = next(
        (v for v in versions if str(v.number) == wanted), versions[0] if versions else None
    )
    action = request.GET.get("action", "")
    action = action if action in dict(ACTIONS) else ""
    text = request.GET.get("host", "").strip()[:MAX_TEXT]
    before = request.GET.get("before", "")
    found: EgressPage | None = None
    if version is not None:
        found = egress_page(
            version.pk,
            action=action,
            text=text,
            before=int(before) if before.isdecimal() and len(before) < 19 else None,
        )
    return page(
        request,
        "web/network.html",
        environment.project,
        "environments",
        [
            Crumb("Environments", reverse("web:environments", args=[project_id])),
            Crumb(environment.name, reverse("web:environment", args=[project_id, slug])),
            Crumb("Network"),
        ],
        environment=environment,
        tabs=tabs_of(environment, "web:environment_network"),
        versions=versions,
        version=version,
        network=Resources.from_json(version.resources).network if version else None,
        is_remote=environment.kind == EnvironmentKind.URL,
        runs_no_code=environment.kind in (EnvironmentKind.QA, EnvironmentKind.SQL),
        found=found,
        n_all=found.n_allowed + found.n_denied if found else 0,
        actions=ACTIONS,
        action=action,
        host=text,
        is_later_page=bool(before),
    )
