"""Published versions: compared, exported; and the end of an environment that nothing uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from orchestrator.environments.authoring import drafts, queries
from orchestrator.environments.authoring.archives import zipped
from orchestrator.environments.authoring.diff import difference
from orchestrator.environments.authoring.errors import DraftRefusedError
from orchestrator.environments.authoring.export import csv_lines, jsonl_lines
from orchestrator.environments.folders import FolderEnvironment, files_of
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import Environment, EnvironmentDraft, EnvironmentVersion
from orchestrator.environments.services import NewTask
from orchestrator.projects.access import role_in
from orchestrator.projects.models import Role
from orchestrator.web import access as web_access
from orchestrator.web import authoring_access as access
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page
from orchestrator.web.views.authoring.drafts import user_of
from orchestrator.web.views.authoring.publishing import shown
from orchestrator.web.views.authoring.shell import environment_crumbs


@login_required
@require_safe
def environment_compare(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """Two versions, the newest two unless the address names others."""
    environment = web_access.environment_for_view(request.user, project_id, slug)
    versions = queries.versions_of(environment)
    after = _numbered(versions, request.GET.get("to")) or (versions[0] if versions else None)
    before = _numbered(versions, request.GET.get("from")) or _predecessor(versions, after)
    is_editor = role_in(request.user, project_id) in (Role.EDITOR, Role.ADMIN)
    found = difference(
        queries.side_of_version(before), queries.side_of_version(after), show_sealed=is_editor
    )
    return page(
        request,
        "web/environment_compare.html",
        environment.project,
        "environments",
        environment_crumbs(environment, Crumb("Compare")),
        environment=environment,
        tabs=tabs_of(environment, "web:environment_compare"),
        versions=versions,
        before=before,
        after=after,
        **shown(found),
    )


def _numbered(versions: list[EnvironmentVersion], number: str | None) -> EnvironmentVersion | None:
    return next((version for version in versions if str(version.number) == number), None)


def _predecessor(
    versions: list[EnvironmentVersion], version: EnvironmentVersion | None
) -> EnvironmentVersion | None:
    return next((v for v in versions if version and v.number < version.number), None)


@login_required
@require_safe
def environment_export(request: HttpRequest, project_id: int, slug: str) -> HttpResponseBase:
    """A version, or the draft, as a folder, JSONL or CSV. For editors: it holds the answers."""
    environment = access.environment_for_edit(request.user, project_id, slug)
    item, name, tasks = _content(environment, request.GET.get("version", ""))
    format = request.GET.get("format", "folder")
    filename = f"{environment.slug}-{name}"
    kind = KINDS[environment.kind]
    if format == "csv":
        return _text(csv_lines(kind, tasks), "text/csv", f"{filename}.csv")
    if format == "jsonl":
        return _text(jsonl_lines(kind, tasks), "application/x-ndjson", f"{filename}.jsonl")
    if format != "folder":
        raise Http404("Formats are folder, jsonl and csv.")
    folder = FolderEnvironment(
        name=environment.name,
        kind=environment.kind,
        about=environment.description,
        description=item.description,
        source=item.source,
        settings=item.settings,
        resources=item.resources,
        tasks=tuple(tasks),
    )
    answer = HttpResponse(zipped(filename, files_of(folder)), content_type="application/zip")
    answer["Content-Disposition"] = f'attachment; filename="{filename}.zip"'
    return answer


def _content(
    environment: Environment, wanted: str
) -> tuple[EnvironmentVersion | EnvironmentDraft, str, list[NewTask]]:
    if wanted == "draft":
        draft = queries.draft_of(environment)
        if draft is None:
            raise Http404("This environment has no draft.")
        return draft, "draft", queries.tasks_of_draft(draft)
    versions = queries.versions_of(environment)
    version = _numbered(versions, wanted) or (versions[0] if versions and not wanted else None)
    if version is None:
        raise Http404("No such version.")
    return version, f"v{version.number}", queries.tasks_of_version(version)


def _text(lines: Iterable[str], content_type: str, filename: str) -> StreamingHttpResponse:
    def joined() -> Iterator[str]:
        """A few thousand lines at a time: each piece crosses a thread."""
        part: list[str] = []
        for line in lines:
            part.append(line)
            if len(part) == 2_000:
                yield "".join(part)
                part = []
        yield "".join(part)

    answer = StreamingHttpResponse(joined(), content_type=f"{content_type}; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{filename}"'
    return answer


@login_required
@require_POST
def environment_describe(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    environment = access.environment_for_edit(request.user, project_id, slug)
    try:
        drafts.describe_environment(
            actor=user_of(request),
            environment=environment,
            name=request.POST.get("name", ""),
            description=request.POST.get("description", "")[:2000],
        )
    except DraftRefusedError as refusal:
        messages.error(request, f"The {refusal}.")
    else:
        messages.success(request, "Name and text for people are stored.")
    return redirect("web:environment", project_id, slug)


@login_required
@require_POST
def environment_delete(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    environment = access.environment_for_edit(request.user, project_id, slug)
    try:
        drafts.delete_environment(actor=user_of(request), environment=environment)
    except DraftRefusedError as refusal:
        messages.error(request, str(refusal))
        return redirect("web:environment", project_id, slug)
    messages.success(request, f"{environment.name} is deleted.")
    return redirect("web:environments", project_id)
