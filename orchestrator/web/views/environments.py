from __future__ import annotations

from collections import defaultdict

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from orchestrator.environments.authoring.queries import draft_of, drafted, is_used
from orchestrator.environments.conformance.queries import badge_of, badges
from orchestrator.environments.errors import EnvironmentProbeError
from orchestrator.environments.models import Split
from orchestrator.environments.packages.queries import open_registrations
from orchestrator.environments.queries import SplitCount, split_counts
from orchestrator.environments.services import connect_environment
from orchestrator.projects.access import project_for_edit, project_for_view, role_in
from orchestrator.projects.models import Role
from orchestrator.web import access, queries
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page

SPLITS = [(value, label) for value, label in Split.choices]


class ConnectForm(forms.Form):
    name = forms.CharField(max_length=120, label="Name")
    base_url = forms.CharField(max_length=400, label="Address of the OpenEnv server")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def environment_list(request: HttpRequest, project_id: int) -> HttpResponse:
    """The list, with the form that connects a server. A failed probe keeps what was typed."""
    if request.method == "POST":
        project = project_for_edit(request.user, project_id)
        form = ConnectForm(request.POST)
        if form.is_valid():
            try:
                version = connect_environment(
                    actor=request.user,  # type: ignore[arg-type] # login_required
                    project=project,
                    name=form.cleaned_data["name"],
                    base_url=form.cleaned_data["base_url"].strip(),
                )
            except EnvironmentProbeError as error:
                form.add_error("base_url", str(error))
            else:
                environment = version.environment
                messages.success(
                    request, f"{environment.name} answers. Its version {version.number} is stored."
                )
                return redirect("web:environment", project_id, environment.slug)
    else:
        project = project_for_view(request.user, project_id)
        form = ConnectForm()
    cards = queries.environment_cards(project.pk)
    return page(
        request,
        "web/environments.html",
        project,
        "environments",
        [Crumb("Environments")],
        status=422 if form.is_bound else 200,
        cards=cards,
        badges=badges(card.version.pk for card in cards if card.version),
        drafted=drafted(project.pk),
        registrations=open_registrations(project.pk),
        form=form,
    )


@login_required
@require_safe
def environment_detail(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    environment = access.environment_for_view(request.user, project_id, slug)
    versions = queries.versions_of(environment.pk)
    wanted = request.GET.get("version", "")
    version = next(
        (v for v in versions if str(v.number) == wanted), versions[0] if versions else None
    )
    split = request.GET.get("split", "")
    split = split if split in Split.values else ""
    family = request.GET.get("family", "")[:64]
    found = None
    counts: list[SplitCount] = []
    if version is not None:
        counts = split_counts(version.pk)
        found = queries.task_page(
            version.pk, split=split, family=family, after=request.GET.get("after", "")[:64]
        )
    return page(
        request,
        "web/environment.html",
        environment.project,
        "environments",
        [
            Crumb("Environments", reverse("web:environments", args=[project_id])),
            Crumb(environment.name, copy=environment.slug),
        ],
        environment=environment,
        tabs=tabs_of(environment, "web:environment"),
        badge=badge_of(version) if version else None,
        has_draft=draft_of(environment) is not None,
        is_used=is_used(environment),
        versions=versions,
        version=version,
        matrix=split_matrix(counts),
        splits=SPLITS,
        split=split,
        family=family,
        found=found,
        records=queries.task_records(task.pk for task in found.tasks) if found else {},
    )


def split_matrix(counts: list[SplitCount]) -> dict[str, object]:
    """Families down, splits across, with totals."""
    cells: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(Split.values, 0))
    for item in counts:
        cells[item.family or "(none)"][item.split] += item.tasks
    rows = [
        {"family": family, "cells": list(row.values()), "total": sum(row.values())}
        for family, row in sorted(cells.items())
    ]
    totals = [sum(row[split] for row in cells.values()) for split in Split.values]
    return {"rows": rows, "totals": totals, "total": sum(totals)}


@login_required
@require_safe
def task_detail(
    request: HttpRequest, project_id: int, slug: str, number: int, key: str
) -> HttpResponse:
    """A task. What solves it is shown to editors, and only on train tasks."""
    task = access.task_for_view(request.user, project_id, slug, number, key)
    role = role_in(request.user, project_id)
    is_open = task.split == Split.TRAIN and role in (Role.EDITOR, Role.ADMIN)
    environment = task.version.environment
    return page(
        request,
        "web/task.html",
        environment.project,
        "environments",
        [
            Crumb("Environments", reverse("web:environments", args=[project_id])),
            Crumb(environment.name, reverse("web:environment", args=[project_id, slug])),
            Crumb(task.key, copy=task.key),
        ],
        task=task,
        environment=environment,
        is_open=is_open,
        files=task_files(task.spec) if is_open else [],
        spec={k: v for k, v in task.spec.items() if k != "files"} if is_open else None,
        reference=task.reference if is_open else None,
        record=queries.task_records([task.pk]).get(task.pk),
        rollouts=queries.rollouts_of_task(task.pk),
    )


def task_files(spec: dict[str, object]) -> list[tuple[str, str]]:
    """(path, text) of the files that a terminal task lays out."""
    files = spec.get("files")
    if not isinstance(files, dict):
        return []
    return [
        (str(path), text if isinstance(text, str) else repr(text)) for path, text in files.items()
    ]
