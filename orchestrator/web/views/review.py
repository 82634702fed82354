"""Review queues: the list, a new one, one queue with its items and its people."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.review import queries, services
from orchestrator.review.access import queue_for_edit, queue_for_view
from orchestrator.review.errors import ItemGone, ReviewRefused
from orchestrator.review.models import QueueMode, ReviewQueue
from orchestrator.review.scales import scales_of
from orchestrator.review.services import Added, QueueSpec
from orchestrator.runs.models import Rollout
from orchestrator.web.frame import Crumb, page

CHANGES = ("assign", "move", "delete")


@login_required
@require_safe
def queue_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    return page(
        request,
        "web/review.html",
        project,
        "review",
        [Crumb("Review")],
        rows=queries.list_queues(project.pk, _user(request)),
        has_rubric=bool(queries.newest_versions(project.pk)),
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def queue_new(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    if request.method != "POST":
        return _new_page(request, project, request.GET)
    try:
        queue = services.create_queue(
            actor=_user(request), project=project, spec=_spec(project, request.POST)
        )
        if chosen := _chosen(project, request.POST):
            added = services.add_items(queue, chosen, actor=_user(request))
            messages.success(request, str(added))
    except ReviewRefused as exc:
        return _new_page(request, project, request.POST, error=str(exc))
    return redirect("web:review_queue", project_id, queue.pk)


def _new_page(
    request: HttpRequest, project: Project, asked: QueryDict, error: str = ""
) -> HttpResponse:
    versions = queries.newest_versions(project.pk)
    named = _number(asked.get("rubric_version"))
    if named and named not in {version.pk for version in versions}:
        older = queries.version_in(project.pk, named)
        versions = [older, *versions] if older else versions
    rollouts = asked.get("rollouts", "") or ",".join(asked.getlist("rollout"))
    return page(
        request,
        "web/review_new.html",
        project,
        "review",
        [Crumb("Review", reverse("web:review", args=[project.pk])), Crumb("New queue")],
        status=422 if error else 200,
        error=error,
        asked=asked,
        versions=[(version, scales_of(version.spec)) for version in versions],
        chosen_version=named or (versions[0].pk if versions else 0),
        chosen_criteria={
            f"{version.pk}:{c}"
            for version in versions
            for c in asked.getlist(f"criteria-{version.pk}")
        },
        modes=QueueMode.choices,
        people=queries.people_who_can(project.pk),
        chosen_people=asked.getlist("reviewers"),
        is_open=asked.get("is_blind") == "off",
        rollouts=rollouts,
        n_rollouts=len([r for r in rollouts.split(",") if r]),
        runs=queries.recent_runs(project.pk),
    )


def _spec(project: Project, data: QueryDict) -> QueueSpec:
    number = _number(data.get("rubric_version"))
    version = queries.version_in(project.pk, number) if number else None
    if version is None:
        raise ReviewRefused("rubric: choose one. A queue asks for the criteria of a rubric.")
    wanted = data.getlist(f"criteria-{version.pk}")
    every = [scale.id for scale in scales_of(version.spec)]
    people = set(data.getlist("reviewers"))
    return QueueSpec(
        name=data.get("name", ""),
        rubric_version=version,
        # All ticked means all, of later versions too.
        criteria=() if set(wanted) == set(every) else [c for c in every if c in wanted] or (),
        instructions=data.get("instructions", "")[:20_000],
        mode=data.get("mode", QueueMode.SINGLE),
        seats=_number(data.get("seats")) or 0,
        reviewers=[p for p in queries.people_who_can(project.pk) if str(p.pk) in people],
        is_blind=data.get("is_blind") != "off",
        reserve_minutes=_number(data.get("reserve_minutes")) or 0,
    )


@login_required
@require_POST
def add(request: HttpRequest, project_id: int) -> HttpResponse:
    """Ticked rollouts, or rollouts of a run by outcome, into a queue or towards a new one."""
    project = project_for_edit(request.user, project_id)
    number = _number(request.POST.get("queue"))
    if not number:
        return _new_page(request, project, request.POST)
    queue = queue_for_edit(request.user, project_id, number)
    try:
        added = services.add_items(queue, _chosen(project, request.POST), actor=_user(request))
    except ReviewRefused as exc:
        messages.error(request, str(exc))
    else:
        _tell(request, added)
    return redirect("web:review_queue", project_id, queue.pk)


def _tell(request: HttpRequest, added: Added) -> None:
    if added.added or added.already:
        messages.success(request, str(added))
    else:
        messages.error(request, f"{added} Choose rollouts that have ended.")


def _chosen(project: Project, data: QueryDict) -> list[Rollout]:
    """The rollouts that a form names. Raises ReviewRefused for a run that is not there."""
    numbers = [*data.get("rollouts", "").split(","), *data.getlist("rollout")]
    ids = [int(n) for n in numbers if n.isdecimal() and len(n) < 19]
    found = queries.rollouts_in(project.pk, ids)
    for number in data.getlist("run"):
        if not number:
            continue
        run = queries.run_in(project.pk, _number(number) or 0)
        if run is None:
            raise ReviewRefused("run: accepts a run of this project.")
        outcome = data.get("outcome", "all")
        found += queries.rollouts_to_add(
            run,
            outcome=outcome if outcome in queries.OUTCOMES else "all",
            at_most=_number(data.get("at_most")) or None,
        )
    return found


@login_required
@require_safe
def queue_detail(request: HttpRequest, project_id: int, queue_id: int) -> HttpResponse:
    queue = queue_for_view(request.user, project_id, queue_id)
    user = _user(request)
    state = request.GET.get("state", "")
    state = state if state in queries.ITEM_STATES else ""
    counts = queries.counts([queue.pk], user).get(queue.pk, queries.Counts())
    return page(
        request,
        "web/review_queue.html",
        queue.project,
        "review",
        [Crumb("Review", reverse("web:review", args=[project_id])), Crumb(queue.name)],
        queue=queue,
        scales=scales_of(queue.rubric_version.spec, queue.criteria),
        counts=counts,
        bars=_bars(counts),
        rows=queries.list_items(queue, user, state=state),
        items_shown=queries.ITEMS_SHOWN,
        state=state,
        states=[
            ("", "all", counts.total),
            ("needs_review", "needs review", counts.needs_review),
            ("needs_others", "needs others", counts.needs_others),
            ("completed", "completed", counts.completed),
        ],
        reviewers=queries.progress(queue),
        people=queries.people_who_can(project_id),
        others=[q for q in queries.names_of_queues(project_id) if q.pk != queue.pk],
        history=queries.history(queue),
        runs=queries.recent_runs(project_id),
        is_after="after" in request.GET,
    )


def _bars(counts: queries.Counts) -> list[dict[str, Any]]:
    """Shares of a bar from 0 to 100."""
    bars, x = [], 0.0
    parts = (
        ("good", counts.completed),
        ("run", counts.needs_others),
        ("off", counts.needs_review),
    )
    for look, n in parts:
        width = 100 * n / counts.total if counts.total else 0.0
        if width:
            bars.append({"look": look, "x": x, "width": width})
        x += width
    return bars


@login_required
@require_POST
def items_change(request: HttpRequest, project_id: int, queue_id: int) -> HttpResponse:
    """Assigns, moves or deletes the ticked items."""
    queue = queue_for_edit(request.user, project_id, queue_id)
    what = request.POST.get("what", "")
    ids = {int(n) for n in request.POST.getlist("item") if n.isdecimal() and len(n) < 19}
    items = queries.items_in(queue, ids)
    try:
        if not items or what not in CHANGES:
            raise ReviewRefused("Tick items first, then choose what to do with them.")
        done = _change(request, queue, what, items)
    except (ReviewRefused, ItemGone) as exc:
        messages.error(request, str(exc))
    else:
        messages.success(request, done)
    return redirect("web:review_queue", project_id, queue.pk)


def _change(request: HttpRequest, queue: ReviewQueue, what: str, items: list[Any]) -> str:
    actor = _user(request)
    n = f"{len(items)} item{'' if len(items) == 1 else 's'}"
    if what == "delete":
        for item in items:
            services.delete_item(actor=actor, item=item)
        return f"{n} deleted. Marks stay with their rollouts."
    if what == "move":
        to = queue_for_edit(actor, queue.project_id, _number(request.POST.get("to")) or 0)
        for item in items:
            services.move_item(actor=actor, item=item, to=to)
        return f"{n} moved to “{to.name}”."
    chosen = set(request.POST.getlist("user"))
    users = [p for p in queries.people_who_can(queue.project_id) if str(p.pk) in chosen]
    for item in items:
        services.assign(actor=actor, item=item, users=users)
    names = ", ".join(user.username for user in users)
    return f"{n} assigned to {names}." if users else f"{n} open to everybody."


@login_required
@require_POST
def queue_delete(request: HttpRequest, project_id: int, queue_id: int) -> HttpResponse:
    queue = queue_for_edit(request.user, project_id, queue_id)
    name = queue.name
    services.delete_queue(actor=_user(request), queue=queue)
    messages.success(request, f"Queue “{name}” is deleted. Marks stay with their rollouts.")
    return redirect("web:review", project_id)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "the views need a signed-in user"
    return request.user
