"""A draft as a whole: started, its settings, undone, discarded."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.environments.authoring import drafts
from orchestrator.environments.authoring.errors import (
    DraftConflictError,
    DraftRefusedError,
    FieldsRefusedError,
)
from orchestrator.environments.authoring.queries import newest_version, version_numbered
from orchestrator.environments.authoring.undo import undo_last
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.models import EnvironmentDraft
from orchestrator.environments.packages.services import KINDS_BY_REGISTRATION
from orchestrator.projects.models import User
from orchestrator.web import authoring_access as access
from orchestrator.web.authoring_forms import (
    EPISODE_FIELDS,
    NETWORK_FIELDS,
    RESOURCE_FIELDS,
    Control,
    episode_of,
    has_error,
    read,
    resources_of,
    show,
    shown_episode,
)
from orchestrator.web.frame import Crumb
from orchestrator.web.views.authoring.shell import draft_page

DESCRIPTION_FIELDS = (
    Field(
        "description",
        "What the agent is told",
        "long_text",
        help="Goes before each task's prompt: what the environment is, how to act in it.",
    ),
)


def user_of(request: HttpRequest) -> User:
    """Views are behind `login_required`."""
    assert isinstance(request.user, User)
    return request.user


@login_required
@require_POST
def draft_start(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """From the version that is named, else from the newest, else empty."""
    environment = access.environment_for_edit(request.user, project_id, slug)
    number = request.POST.get("version", "")
    newest = newest_version(environment)
    version = (
        version_numbered(environment, int(number))
        if number.isdecimal() and len(number) < 9
        else newest
    )
    drafts.start_draft(actor=user_of(request), environment=environment, version=version)
    return redirect("web:draft", project_id, slug)


@login_required
@require_POST
def draft_discard(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    draft = access.draft_for_edit(request.user, project_id, slug)
    drafts.discard_draft(actor=user_of(request), draft=draft)
    messages.success(request, "The draft is discarded. Published versions are as they were.")
    return redirect("web:environment", project_id, slug)


@login_required
@require_POST
def draft_undo(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    draft = access.draft_for_edit(request.user, project_id, slug)
    revision = request.POST.get("revision", "")
    try:
        label = undo_last(
            actor=user_of(request),
            draft=draft,
            revision=int(revision) if revision.isdecimal() and len(revision) < 10 else -1,
        )
    except DraftRefusedError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"Undone: {label}.")
    return redirect("web:draft", project_id, slug)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def draft_settings(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """Source, description, limits, resources. What was typed is kept until it fits."""
    draft = access.draft_for_edit(request.user, project_id, slug)
    if request.method == "POST":
        return _save(request, draft)
    return _settings_page(request, draft, _shown(draft))


Groups = dict[str, list[Control]]


def _source_fields(draft: EnvironmentDraft) -> Sequence[Field]:
    """None of a source that had to be prepared: another one is registered anew."""
    kind = draft.environment.kind
    return () if kind in KINDS_BY_REGISTRATION else KINDS[kind].source_fields


def _shown(draft: EnvironmentDraft) -> Groups:
    return {
        "about": show(DESCRIPTION_FIELDS, {"description": draft.description}, "d-"),
        "source": show(_source_fields(draft), draft.source, "s-"),
        "episode": show(EPISODE_FIELDS, shown_episode(draft.settings), "e-"),
        "resources": show(RESOURCE_FIELDS, draft.resources, "r-"),
        "network": show(NETWORK_FIELDS, draft.resources.get("network", {}), "n-"),
    }


def _save(request: HttpRequest, draft: EnvironmentDraft) -> HttpResponse:
    post, source_fields = request.POST, _source_fields(draft)
    address = (draft.environment.project_id, draft.environment.slug)
    about, about_controls = read(DESCRIPTION_FIELDS, post, "d-")
    source, source_controls = read(source_fields, post, "s-", is_complete=False)
    episode, episode_controls = read(EPISODE_FIELDS, post, "e-")
    numbers, number_controls = read(RESOURCE_FIELDS, post, "r-")
    network, network_controls = read(NETWORK_FIELDS, post, "n-")
    groups: Groups = {
        "about": about_controls,
        "source": source_controls,
        "episode": episode_controls,
        "resources": number_controls,
        "network": network_controls,
    }
    if has_error(*groups.values()):
        return _settings_page(request, draft, groups, status=422)
    # What a form does not show stays: an import may have set it.
    names = {f.name for f in (*source_fields, *EPISODE_FIELDS)} | {"reward_range"}
    kept = [{k: v for k, v in d.items() if k not in names} for d in (draft.source, draft.settings)]
    try:
        drafts.save_settings(
            actor=user_of(request),
            draft=draft,
            seen=post.get("seen", ""),
            values={
                "source": {**kept[0], **source},
                "settings": {**kept[1], **episode_of(episode)},
                "resources": resources_of(numbers, network),
                "description": about.get("description", ""),
            },
        )
    except FieldsRefusedError as refusal:
        return _settings_page(request, draft, groups, refusal=refusal.errors, status=422)
    except DraftConflictError:
        draft = access.draft_for_edit(request.user, *address)
        return _settings_page(request, draft, groups, theirs=_shown(draft), status=409)
    messages.success(request, "The settings are stored in the draft.")
    return redirect("web:draft_settings", *address)


def _settings_page(
    request: HttpRequest,
    draft: EnvironmentDraft,
    groups: Groups,
    *,
    refusal: dict[str, str] | None = None,
    theirs: Groups | None = None,
    status: int = 200,
) -> HttpResponse:
    return draft_page(
        request,
        "web/environment_draft_settings.html",
        draft,
        "draft_settings",
        Crumb("Settings"),
        status=status,
        groups=groups,
        refusal=refusal or {},
        fixed_source=draft.source if draft.environment.kind in KINDS_BY_REGISTRATION else None,
        seen=drafts.settings_digest(draft),
        differences=differences(theirs, groups) if theirs else [],
        is_conflict=theirs is not None,
    )


def differences(theirs: Groups, mine: Groups) -> list[dict[str, str]]:
    """What is stored by now beside what was typed, where they differ."""
    found = []
    for name, controls in mine.items():
        for stored, typed in zip(theirs[name], controls, strict=True):
            if (stored.text, list(stored.files)) != (typed.text, list(typed.files)):
                found.append(
                    {"label": typed.field.label, "theirs": _said(stored), "mine": _said(typed)}
                )
    return found


def _said(control: Control) -> str:
    if control.field.type == "files":
        return "\n".join(f"{path}: {text}" for path, text in control.files)
    return control.text
