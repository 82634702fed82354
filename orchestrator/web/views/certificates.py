"""The certificate of a search: a page that can be linked and printed, and its two exports."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from optimizer.models import Search
from orchestrator.web import access, search_queries
from orchestrator.web.certificates import Certificate, certificate
from orchestrator.web.exported import styles
from orchestrator.web.frame import Crumb, page
from orchestrator.web.search_page import budget_lines, noise_of

STYLES = ("tokens", "base", "card", "pill", "table", "ladder", "search", "certificate")
"""Of the exported page: the same as on the product's own."""


@login_required
@require_safe
def search_certificate(
    request: HttpRequest, project_id: int, search_id: int, comparison_id: int
) -> HttpResponse:
    search, found = _certificate(request, project_id, search_id, comparison_id)
    diff_url = ""
    if found.harness_id is not None:
        diff_url = reverse(
            "web:harness_diff", args=[project_id, search.seed_harness_id, found.harness_id]
        )
    return page(
        request,
        "web/search_certificate.html",
        search.project,
        "optimise",
        [
            Crumb("Optimise", reverse("web:searches", args=[project_id])),
            Crumb(str(search), reverse("web:search", args=[project_id, search.pk])),
            Crumb(found.id, copy=request.build_absolute_uri()),
        ],
        search=search,
        comparison_id=comparison_id,
        diff_url=diff_url,
        **_context(found),
    )


@login_required
@require_safe
def certificate_export(
    request: HttpRequest, project_id: int, search_id: int, comparison_id: int, form: str
) -> HttpResponse:
    search, found = _certificate(request, project_id, search_id, comparison_id)
    name = f"certificate-{found.id}-search-{search.pk}.{form}"
    response: HttpResponse
    if form == "json":
        response = JsonResponse(found.to_json(), json_dumps_params={"indent": 2})
    else:
        address = request.build_absolute_uri(
            reverse("web:search_certificate", args=[project_id, search.pk, comparison_id])
        )
        context = {
            "search": search,
            "address": address,
            "styles": styles(*STYLES),
            **_context(found),
        }
        response = HttpResponse(render_to_string("web/certificate_file.html", context))
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _certificate(
    request: HttpRequest, project_id: int, search_id: int, comparison_id: int
) -> tuple[Search, Certificate]:
    allowed = access.search_for_view(request.user, project_id, search_id)
    view = search_queries.certificate_view(allowed.pk, comparison_id)
    if view is None:
        raise Http404("The search has no such certificate.")
    return view.search, certificate(
        comparison=view.comparison,
        search=view.search,
        candidate=view.candidate,
        edits=view.edits,
        tasks=view.tasks,
        budgets=budget_lines(view.budgets),
        noise=noise_of(view.search.outcome),
    )


def _context(found: Certificate) -> dict[str, Any]:
    return {
        "certificate": found,
        "curve": found.curve(),
        "narrow_curve": found.curve(is_narrow=True),
    }
