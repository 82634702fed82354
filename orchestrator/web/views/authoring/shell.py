"""What every page of a draft has around it: tabs, the bar of the draft, its own way about."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from orchestrator.environments.authoring.queries import draft_counts
from orchestrator.environments.models import Environment, EnvironmentDraft
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page

PARTS = (
    ("draft", "Tasks"),
    ("draft_upload", "Upload"),
    ("draft_settings", "Settings"),
    ("draft_publish", "Publish"),
)


def environment_crumbs(environment: Environment, *more: Crumb) -> list[Crumb]:
    project_id = environment.project_id
    here = reverse("web:environment", args=[project_id, environment.slug]) if more else ""
    return [
        Crumb("Environments", reverse("web:environments", args=[project_id])),
        Crumb(environment.name, here, copy="" if more else environment.slug),
        *more,
    ]


def draft_page(
    request: HttpRequest,
    template: str,
    draft: EnvironmentDraft,
    part: str,
    *crumbs: Crumb,
    status: int = 200,
    **context: Any,
) -> HttpResponse:
    environment = draft.environment
    address = [environment.project_id, environment.slug]
    counts = draft_counts(draft)
    above = Crumb("Draft", reverse("web:draft", args=address) if crumbs else "")
    return page(
        request,
        template,
        environment.project,
        "environments",
        environment_crumbs(environment, above, *crumbs),
        status=status,
        environment=environment,
        draft=draft,
        tabs=tabs_of(environment, "web:draft"),
        parts=[
            {"label": label, "url": reverse(f"web:{name}", args=address), "is_here": name == part}
            for name, label in PARTS
        ],
        counts=counts,
        total=sum(counts.values()),
        **context,
    )
