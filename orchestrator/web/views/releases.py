"""Which harness counts in each environment: released, and rolled back in one click."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from orchestrator.harnesses import queries
from orchestrator.projects.access import project_for_view
from orchestrator.searches import releases
from orchestrator.web import access, harness_access
from orchestrator.web.frame import Crumb, page
from orchestrator.web.optimise_tabs import tabs_of
from orchestrator.web.views.authoring.drafts import user_of
from orchestrator.web.views.harnesses import SECTION, harness_crumbs


@login_required
@require_safe
def release_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    return page(
        request,
        "web/releases.html",
        project,
        SECTION,
        [*harness_crumbs(project_id)[:1], Crumb("Releases")],
        listed=queries.releases_of(project_id),
        tabs=tabs_of(project_id, "web:releases"),
    )


@login_required
@require_POST
def release_roll_back(request: HttpRequest, project_id: int, release_id: int) -> HttpResponse:
    release = harness_access.release_for_edit(request.user, project_id, release_id)
    environment = release.environment.name
    try:
        counts = releases.roll_back(actor=user_of(request), release=release)
    except releases.ReleaseRefused as refusal:
        messages.error(request, str(refusal))
    else:
        now = f"{counts.harness.short} counts again" if counts else "nothing is released there now"
        messages.success(
            request, f"{release.harness.short} is rolled back in {environment}; {now}."
        )
    return redirect("web:releases", project_id)


@login_required
@require_POST
def harness_release(request: HttpRequest, project_id: int, harness_id: int) -> HttpResponse:
    """A person's decision, on whatever evidence there is."""
    version = harness_access.harness_for_edit(request.user, project_id, harness_id)
    environment = access.environment_for_view(
        request.user, project_id, request.POST.get("environment", "")
    )
    proof = queries.proofs_of(project_id, [version.sha256]).get(version.sha256)
    on_it = proof is not None and proof.is_about(environment)
    try:
        releases.release(
            actor=user_of(request),
            environment=environment,
            harness=version,
            search=proof.comparison.search if proof and on_it else None,
            certificate=proof.comparison if proof and on_it else None,
            note=request.POST.get("note", "")[:2000],
        )
    except releases.ReleaseRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("web:harness", project_id, harness_id)
    messages.success(request, f"{version.short} is released in {environment.name}.")
    return redirect("web:releases", project_id)
