from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from orchestrator.climbs.queries import claim
from orchestrator.projects.access import project_for_view, role_in
from orchestrator.projects.models import Role, User
from orchestrator.projects.queries import projects_of
from orchestrator.web import queries
from orchestrator.web.figures import MINI, NARROW, WIDE, climb_figure
from orchestrator.web.frame import Crumb, page
from orchestrator.web.health import signs
from orchestrator.web.ladder import climb_cards, rung_rows
from orchestrator.web.now_queries import now_of
from orchestrator.web.templatetags.formats import THEMES

YEAR_S = 365 * 24 * 3600


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """To the only or the first project; without any, a page that says what to do."""
    project = projects_of(request.user).first()
    if project is None:
        return render(request, "web/no_project.html")
    return redirect("web:overview", project.pk)


@login_required
@require_safe
def overview(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    climb = queries.current_climb(project.pk)
    rungs = queries.rungs_of(climb.pk) if climb else []
    runs = queries.run_page(project.pk, limit=8)
    role = role_in(request.user, project.pk)
    can_edit = role in (Role.EDITOR, Role.ADMIN)
    reviewer = request.user if can_edit and isinstance(request.user, User) else None
    now = now_of(
        project.pk,
        to_review=queries.rail_counts(project.pk, reviewer).review,
        can_edit=can_edit,
    )
    names = [rung.get_kind_display() for rung in rungs]
    return page(
        request,
        "web/overview.html",
        project,
        "overview",
        [Crumb("Overview")],
        climb=climb,
        headline=claim(climb, rungs) if climb else "",
        rungs=rung_rows(rungs),
        figure=climb_figure(rungs, names, WIDE) if rungs else None,
        narrow=climb_figure(rungs, names, NARROW) if rungs else None,
        mini=climb_figure(rungs, names, MINI) if rungs else None,
        runs=runs,
        now=now,
        climbs=climb_cards(queries.last_climbs(project.pk, but=climb.pk if climb else None)),
        environments=queries.environment_cards(project.pk),
    )


@login_required
@require_safe
def status(request: HttpRequest, project_id: int) -> JsonResponse:
    """The signs of the status bar, for the script that keeps it fresh."""
    project_for_view(request.user, project_id)
    told = [
        {"name": s.name, "level": s.level, "text": s.text, "detail": s.detail.replace("`", "")}
        for s in signs()
    ]
    return JsonResponse({"signs": told})


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Remembers light, dark or system in a cookie, so that the server renders the right one."""
    wanted = request.POST.get("theme", "")
    back = request.POST.get("next") or request.headers.get("referer", "")
    allowed = url_has_allowed_host_and_scheme(
        back, {request.get_host()}, require_https=request.is_secure()
    )
    response = redirect(back if allowed else reverse("web:home"))
    if wanted in THEMES:
        response.set_cookie(
            "theme", wanted, max_age=YEAR_S, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE
        )
    else:
        response.delete_cookie("theme", samesite="Lax")
    return response
