"""The library of harnesses: the list, one of them, any two compared, given out as a zip file."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from optimizer.harness import export_zip
from optimizer.models import HarnessVersion
from orchestrator.harnesses import queries
from orchestrator.harnesses.difference import difference, order
from orchestrator.harnesses.findings import findings_of, sizes_of
from orchestrator.projects.access import project_for_view
from orchestrator.runs.activation import activations
from orchestrator.web import harness_access as access
from orchestrator.web.frame import Crumb, page
from orchestrator.web.harness_cards import DEMONSTRATIONS_SHOWN, cards_of, starters_for
from orchestrator.web.optimise_tabs import tabs_of

SECTION = "optimise"


@login_required
@require_safe
def harness_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    show = request.GET.get("show", "")
    show = show if show in dict(queries.SHOW) else ""
    find = request.GET.get("find", "")[:120]
    before = request.GET.get("before", "")
    library = queries.library(
        project.pk,
        show=show,
        find=find,
        before_id=int(before) if before.isdecimal() and len(before) < 19 else None,
    )
    return page(
        request,
        "web/harnesses.html",
        project,
        SECTION,
        [*harness_crumbs(project_id)[:1], Crumb("Harnesses")],
        library=library,
        show=show,
        shows=queries.SHOW,
        find=find,
        is_later_page=bool(before),
        tabs=tabs_of(project_id, "web:harnesses"),
    )


@login_required
@require_safe
def harness_page(request: HttpRequest, project_id: int, harness_id: int) -> HttpResponse:
    version = access.harness_for_view(request.user, project_id, harness_id)
    contents = queries.contents_of(version)
    harness = contents.harness
    return page(
        request,
        "web/harness.html",
        version.project,
        SECTION,
        [*harness_crumbs(project_id), Crumb(version.short, copy=version.sha256)],
        version=version,
        contents=contents,
        texts=sorted(contents.texts.items(), key=lambda item: order(item[0])),
        cards=cards_of(harness) if harness else None,
        n_shown=DEMONSTRATIONS_SHOWN,
        sizes=sizes_of(harness) if harness else None,
        findings=findings_of(harness) if harness else [],
        activation=activations(harness=version),
        story=queries.story_of(version),
        proof=queries.proofs_of(project_id, [version.sha256]).get(version.sha256),
        released=[
            release
            for release in queries.current_releases(project_id)
            if release.harness_id == version.pk
        ],
        environments=queries.environments_of(project_id),
        choices=[each for each in queries.choices(project_id) if each.pk != version.pk],
        starters=starters_for(list(contents.texts)),
    )


@login_required
@require_safe
def harness_export(request: HttpRequest, project_id: int, harness_id: int) -> HttpResponse:
    version = access.harness_for_view(request.user, project_id, harness_id)
    harness = queries.contents_of(version).harness
    if harness is None:
        raise Http404("Its texts are no harness; there is nothing to export.")
    name = slugify(version.label) or "harness"
    return HttpResponse(
        export_zip(harness),
        content_type="application/zip",
        headers={"Content-Disposition": f'attachment; filename="{name}-{version.short}.zip"'},
    )


@login_required
@require_safe
def harness_compare(request: HttpRequest, project_id: int) -> HttpResponse:
    """From the form that names two of them to the address of their difference."""
    project_for_view(request.user, project_id)
    found = [
        access.harness_for_view(request.user, project_id, _pk(request.GET.get(name, "")))
        for name in ("from", "to")
    ]
    return redirect("web:harness_diff", project_id, *(version.pk for version in found))


def _pk(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0


@login_required
@require_safe
def harness_diff(
    request: HttpRequest, project_id: int, before_id: int, after_id: int
) -> HttpResponse:
    before = access.harness_for_view(request.user, project_id, before_id)
    after = access.harness_for_view(request.user, project_id, after_id)
    old, new = queries.contents_of(before), queries.contents_of(after)
    components = difference(old.texts, new.texts)
    return page(
        request,
        "web/harness_diff.html",
        after.project,
        SECTION,
        [
            *harness_crumbs(project_id),
            Crumb(after.short, reverse("web:harness", args=[project_id, after.pk])),
            Crumb(f"from {before.short}"),
        ],
        before=before,
        after=after,
        components=components,
        n_same=len(old.texts.keys() & new.texts.keys())
        - sum(each.change == "changed" for each in components),
        choices=_with(queries.choices(project_id), before, after),
    )


def _with(choices: list[HarnessVersion], *shown: HarnessVersion) -> list[HarnessVersion]:
    """The choices and what is shown, which may be a candidate that no list has."""
    known = {version.pk for version in choices}
    return [*(each for each in dict.fromkeys(shown) if each.pk not in known), *choices]


def harness_crumbs(project_id: int) -> list[Crumb]:
    return [
        Crumb("Optimise", reverse("web:searches", args=[project_id])),
        Crumb("Harnesses", reverse("web:harnesses", args=[project_id])),
    ]
