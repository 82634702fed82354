from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.grading.queries import draft_of, drafts_by_rubric
from orchestrator.projects.access import project_for_view
from orchestrator.review.badges import badges_of
from orchestrator.web import access, queries
from orchestrator.web.frame import Crumb, page
from orchestrator.web.rubric import criteria_of
from orchestrator.web.rubric_tabs import tabs_of
from rubrics.types import RubricSpec

DEFAULTS = RubricSpec(criteria=())
"""What a stored spec leaves out."""


@login_required
@require_safe
def rubric_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    drafts = drafts_by_rubric(project.pk)
    rows = []
    for rubric in queries.rubrics_of(project.pk):
        versions = sorted(rubric.versions.all(), key=lambda version: -version.number)
        rows.append(
            {
                "rubric": rubric,
                "draft": drafts.get(rubric.pk),
                "newest": versions[0] if versions else None,
                "criteria": criteria_of(versions[0].spec) if versions else [],
            }
        )
    return page(request, "web/rubrics.html", project, "rubrics", [Crumb("Rubrics")], rows=rows)


@login_required
@require_safe
def rubric_detail(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = access.rubric_for_view(request.user, project_id, rubric_id)
    versions = sorted(rubric.versions.all(), key=lambda version: -version.number)
    wanted = request.GET.get("version", "")
    version = next(
        (v for v in versions if str(v.number) == wanted), versions[0] if versions else None
    )
    return page(
        request,
        "web/rubric.html",
        rubric.project,
        "rubrics",
        [Crumb("Rubrics", reverse("web:rubrics", args=[project_id])), Crumb(rubric.name)],
        rubric=rubric,
        draft=draft_of(rubric),
        tabs=tabs_of(rubric, "web:rubric"),
        versions=versions,
        version=version,
        criteria=criteria_of(version.spec) if version else [],
        badges=badges_of(rubric, version) if version else {},
        pass_threshold=version.spec.get("pass_threshold", DEFAULTS.pass_threshold)
        if version
        else 0,
        min_coverage=version.spec.get("min_coverage", DEFAULTS.min_coverage) if version else 0,
    )
