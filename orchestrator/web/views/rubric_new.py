"""A new rubric: its name, and what it starts from."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from orchestrator.grading.drafts import create_rubric
from orchestrator.grading.errors import DraftRefused
from orchestrator.projects.access import project_for_edit
from orchestrator.web.frame import Crumb, page
from orchestrator.web.rubric import criteria_of
from orchestrator.web.views.rubric_editor import user_of
from rubrics.templates import TEMPLATES


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def rubric_new(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    name, chosen = request.POST.get("name", ""), request.POST.get("template", "")
    problem = ""
    if request.method == "POST":
        try:
            draft = create_rubric(
                actor=user_of(request), project=project, name=name, template_key=chosen
            )
        except DraftRefused as refusal:
            problem = str(refusal)
        else:
            return redirect("web:rubric_edit", project_id, draft.rubric_id)
    return page(
        request,
        "web/rubric_new.html",
        project,
        "rubrics",
        [Crumb("Rubrics", reverse("web:rubrics", args=[project_id])), Crumb("New rubric")],
        status=422 if problem else 200,
        name=name,
        chosen=chosen,
        problem=problem,
        templates=[(t, criteria_of(t.spec)) for t in TEMPLATES],
    )
