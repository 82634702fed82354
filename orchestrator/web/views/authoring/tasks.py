"""Tasks of a draft: the table, one task's form, changes of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.environments.authoring import queries, tasks
from orchestrator.environments.authoring.errors import DraftConflictError, DraftRefusedError
from orchestrator.environments.models import EnvironmentDraft, Split
from orchestrator.web import authoring_access as access
from orchestrator.web.environment_tabs import tabs_of
from orchestrator.web.frame import Crumb, page
from orchestrator.web.views.authoring.drafts import user_of
from orchestrator.web.views.authoring.shell import draft_page, environment_crumbs
from orchestrator.web.views.authoring.task_form import task_form


@login_required
@require_safe
def draft_tasks(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """The table of tasks; where there is no draft, the way to start one."""
    environment = access.environment_for_edit(request.user, project_id, slug)
    draft = queries.draft_of(environment)
    if draft is None:
        return page(
            request,
            "web/environment_draft_none.html",
            environment.project,
            "environments",
            environment_crumbs(environment, Crumb("Draft")),
            environment=environment,
            tabs=tabs_of(environment, "web:draft"),
            versions=queries.versions_of(environment)[:50],
        )
    return draft_page(
        request, "web/environment_draft.html", draft, "draft", **_table(draft, request.GET)
    )


def _table(draft: EnvironmentDraft, asked: QueryDict) -> dict[str, Any]:
    split = asked.get("split", "")
    split = split if split in Split.values else ""
    family = asked.get("group")
    text = asked.get("q", "")[:200]
    number = asked.get("page", "1")
    query = queries.draft_tasks(draft, split=split, family=family or None, text=text)
    kept = {"split": split, "group": family or "", "q": text}
    return {
        "found": queries.draft_task_page(
            query, page=int(number) if number.isdecimal() and len(number) < 9 else 1
        ),
        "families": queries.draft_families(draft),
        "split": split,
        "family": family or "",
        "text": text,
        "splits": Split.choices,
        "filter": urlencode({name: value for name, value in kept.items() if value}),
    }


@login_required
@require_POST
def draft_tasks_change(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """Moves, copies or deletes what is ticked, or all that the filter lets through."""
    draft = access.draft_for_edit(request.user, project_id, slug)
    back = request.POST.get("filter", "")[:400]
    try:
        messages.success(request, _change(request, draft, _keys(request, draft)))
    except DraftRefusedError as refusal:
        messages.error(request, str(refusal))
    return _to_table(project_id, slug, back)


def _keys(request: HttpRequest, draft: EnvironmentDraft) -> list[str]:
    if request.POST.get("all") != "on":
        return request.POST.getlist("key")
    asked = QueryDict(request.POST.get("filter", "")[:400])
    return queries.draft_keys(
        draft,
        split=asked.get("split", ""),
        family=asked.get("group") or None,
        text=asked.get("q", ""),
    )


def _change(request: HttpRequest, draft: EnvironmentDraft, keys: Sequence[str]) -> str:
    action = request.POST.get("action", "")
    actor = user_of(request)
    if action == "delete":
        n = tasks.delete_tasks(actor=actor, draft=draft, keys=keys)
        return f"Deleted: {_tasks(n)}."
    if action == "duplicate":
        added = tasks.duplicate_tasks(actor=actor, draft=draft, keys=keys)
        return f"Copied: {_tasks(len(added))}."
    moved = tasks.move_tasks(actor=actor, draft=draft, keys=keys, split=action)
    return f"Moved to {action}: {_tasks(moved.n_tasks)}.{_dropped(moved)}"


def _tasks(n: int) -> str:
    return "1 task" if n == 1 else f"{n:,} tasks"


def _dropped(moved: tasks.Moved) -> str:
    if not moved.n_references:
        return ""
    return (
        f" {moved.n_references:,} reference transcripts were dropped: only train tasks may have "
        "one."
    )


def _to_table(project_id: int, slug: str, query: str = "") -> HttpResponseRedirect:
    address = reverse("web:draft", args=[project_id, slug])
    # Decoded and encoded again, so that nothing but the table's own words gets into the address.
    kept = {
        name: value
        for name, value in QueryDict(query).items()
        if name in ("split", "group", "q") and value
    }
    return HttpResponseRedirect(f"{address}?{urlencode(kept)}" if kept else address)


@login_required
@require_POST
def draft_split(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """Draws every task into a split by a seed. Sizes are numbers or shares: `60` or `20 %`."""
    draft = access.draft_for_edit(request.user, project_id, slug)
    total = draft.tasks.count()
    try:
        select = _size("select", request.POST.get("select", ""), total)
        test = _size("test", request.POST.get("test", ""), total)
        seed = request.POST.get("seed", "").strip()
        if not seed.isdecimal() or len(seed) > 9:
            raise DraftRefusedError("The seed is a whole number from 0 to 999,999,999.")
        revision = request.POST.get("revision", "")
        moved = tasks.assign_splits(
            actor=user_of(request),
            draft=draft,
            revision=int(revision) if revision.isdecimal() and len(revision) < 10 else -1,
            seed=int(seed),
            select=select,
            test=test,
        )
    except DraftRefusedError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(
            request, f"Drawn by seed {int(seed)}: {_tasks(moved.n_tasks)} moved.{_dropped(moved)}"
        )
    return _to_table(project_id, slug)


def _size(name: str, text: str, total: int) -> int:
    text = text.strip()
    is_share = text.endswith("%")
    digits = text.removesuffix("%").strip() or "0"
    if not digits.isdecimal() or len(digits) > 9 or (is_share and int(digits) > 100):
        raise DraftRefusedError(f"{name}: a number of tasks, or a share such as 20 %.")
    return round(total * int(digits) / 100) if is_share else int(digits)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def draft_task_new(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    draft = access.draft_for_edit(request.user, project_id, slug)
    return _task_page(request, draft, key="")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def draft_task(request: HttpRequest, project_id: int, slug: str, key: str) -> HttpResponse:
    """One task's form. Somebody else's change in between is shown beside what was typed."""
    draft, task = access.draft_task_for_edit(request.user, project_id, slug, key)
    if task is None and request.method != "POST":
        messages.error(request, f"{key} is not in the draft any more.")
        return _to_table(project_id, slug)
    return _task_page(request, draft, key=key)


def _task_page(request: HttpRequest, draft: EnvironmentDraft, *, key: str) -> HttpResponse:
    row = queries.draft_task(draft, key) if key else None
    form = task_form(draft, row, request.POST if request.method == "POST" else None)
    address = [draft.environment.project_id, draft.environment.slug]
    status, conflict, theirs = 200, "", []
    if form.is_bound:
        if form.task is not None:
            try:
                saved = tasks.save_task(
                    actor=user_of(request),
                    draft=draft,
                    task=form.task,
                    key=key,
                    seen=request.POST.get("seen", ""),
                )
            except DraftConflictError as refusal:
                conflict = str(refusal)
                row = queries.draft_task(draft, key)
                theirs = task_form(draft, row, None).differences(form) if row else []
                form = form.against(row)
            except DraftRefusedError as refusal:
                form = form.refused(refusal)
            else:
                messages.success(request, f"{saved.key} is stored.")
                if "another" in request.POST:
                    return redirect("web:draft_task_new", *address)
                return redirect("web:draft_task", *address, saved.key)
        status = 409 if conflict else 422
    before, after = queries.neighbours(draft, key) if key else ("", "")
    is_sealed = row is not None and queries.is_sealed(draft, row)
    if form.is_closed or (is_sealed and not form.is_bound and "open" not in request.GET):
        form = form.closed()
    return draft_page(
        request,
        "web/environment_draft_task.html",
        draft,
        "draft",
        Crumb(key or "New task", copy=key),
        status=status,
        form=form,
        key=key if row is not None else "",
        title=key or "New task",
        before=before,
        after=after,
        conflict=conflict,
        theirs=theirs,
        is_sealed=is_sealed,
    )
