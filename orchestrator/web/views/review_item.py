"""One item under review: what is shown, and what a reviewer does with it.

GET writes nothing: the page takes its reservation by a request of its own, and without JavaScript
the seat is taken when the marks are saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.projects.access import role_in
from orchestrator.projects.models import Role, User
from orchestrator.review import marks as marking
from orchestrator.review import queries, reservations, services
from orchestrator.review.access import item_in, queue_for_edit, queue_for_view
from orchestrator.review.entries import name_of
from orchestrator.review.errors import ItemGone, ReviewRefused, SeatLost
from orchestrator.review.marks import Mark
from orchestrator.review.models import ReviewItem, ReviewQueue, SeatState
from orchestrator.review.scales import scales_of
from orchestrator.runs.models import Rollout
from orchestrator.web import queries as pages
from orchestrator.web.frame import Crumb, page
from orchestrator.web.review_page import (
    agreements,
    asked,
    is_pair,
    read_marks,
    without_grades,
)
from orchestrator.web.rubric import negative_criteria
from orchestrator.web.trace import build_trace


@login_required
@require_safe
def item_page(request: HttpRequest, project_id: int, queue_id: int, item_id: int) -> HttpResponse:
    queue = queue_for_view(request.user, project_id, queue_id)
    item = item_in(queue, item_id)
    if item is None:
        return _gone(request, queue, item_id, {}, status=410)
    return _show(request, queue, item)


def _show(
    request: HttpRequest,
    queue: ReviewQueue,
    item: ReviewItem,
    *,
    sent: Mapping[str, Mark] | None = None,
    trouble: str = "",
    status: int = 200,
) -> HttpResponse:
    user = _user(request)
    can_edit = role_in(user, queue.project_id) in (Role.EDITOR, Role.ADMIN)
    rows = queries.list_items(queue, user, state=request.GET.get("state", ""))
    seat = queries.seat_of(item, user) if can_edit else None
    is_done = seat is not None and seat.state == SeatState.DONE
    can_mark = can_edit and (seat is not None or queries.can_take(item, user))
    marks = queries.marks_of(item)
    n_done = len(marks)
    is_complete = n_done >= queue.seats
    is_revealed = is_done or not can_edit or is_complete or not queue.is_blind
    scales = scales_of(queue.rubric_version.spec, queue.criteria)
    sides = [item.rollout] if item.other is None else [item.rollout, item.other]
    if item.is_swapped:
        sides.reverse()
    at = next((i for i, row in enumerate(rows) if row.item.pk == item.pk), None)
    after = request.GET.get("after", "")
    return page(
        request,
        "web/review_item.html",
        queue.project,
        "review",
        [
            Crumb("Review", reverse("web:review", args=[queue.project_id])),
            Crumb(queue.name, reverse("web:review_queue", args=[queue.project_id, queue.pk])),
            Crumb(name_of(item)),
        ],
        status=status,
        queue=queue,
        item=item,
        name=name_of(item),
        counts=queries.counts([queue.pk], user).get(queue.pk, queries.Counts()),
        rows=rows,
        previous=rows[at - 1].item if at else None,
        following=rows[at + 1].item if at is not None and at + 1 < len(rows) else None,
        n_done=n_done,
        seat=seat,
        is_done=is_done,
        is_complete=is_complete,
        is_revealed=is_revealed,
        can_mark=can_mark,
        is_pair=is_pair(queue),
        asked=asked(
            queue, item, scales, marks.get(user.pk, {}), sent, errors=bool(sent and trouble)
        ),
        trouble=trouble,
        sides=[
            _side(rollout, side, is_revealed) for rollout, side in zip(sides, "AB", strict=False)
        ],
        agreements=_agreements(queue, item, user) if is_revealed else [],
        correction=queries.correction_of(item.rollout_id, user),
        comments=queries.comments_of(item),
        last=_last(queue, int(after), user) if after.isdecimal() and len(after) < 19 else None,
    )


def _side(rollout: Rollout, letter: str, is_revealed: bool) -> dict[str, Any]:
    events: Any = pages.events_of(rollout.stream_id)
    if not is_revealed:
        events = without_grades(events)
    attempts = build_trace(events, negative_criteria(rollout.run.rubric_version.spec))
    return {
        "letter": letter,
        "rollout": rollout,
        "cards": attempts[-1].cards,
        "prefix": f"{letter.lower()}-",
    }


def _agreements(queue: ReviewQueue, item: ReviewItem, user: User) -> list[Any]:
    marks = queries.marks_of(item)
    names = {
        who: next(iter(all_of.values())).user.username for who, all_of in marks.items() if all_of
    }
    verdicts = queries.verdicts_of(
        [pk for pk in (item.rollout_id, item.other_id) if pk], queue.rubric_version.rubric_id
    )
    scales = scales_of(queue.rubric_version.spec, queue.criteria)
    return agreements(queue, item, scales, marks, verdicts, user.pk, names)


def _last(queue: ReviewQueue, item_id: int, user: User) -> dict[str, Any] | None:
    """What was done just now, for the line above the next item."""
    item = item_in(queue, item_id)
    if item is None or not queries.is_done_by(item, user):
        return None
    found = _agreements(queue, item, user)
    compared = [row for row in found if row.agrees is not None]
    return {
        "item": item,
        "name": name_of(item),
        "n_compared": len(compared),
        "n_agree": sum(row.agrees is True for row in compared),
    }


@login_required
@require_POST
def take_next_item(request: HttpRequest, project_id: int, queue_id: int) -> HttpResponse:
    queue = queue_for_edit(request.user, project_id, queue_id)
    return _next(request, queue)


def _next(request: HttpRequest, queue: ReviewQueue, after: int | None = None) -> HttpResponse:
    item = reservations.take_next(actor=_user(request), queue=queue)
    query = f"?after={after}" if after else ""
    if item is None:
        return redirect(
            reverse("web:review_queue", args=[queue.project_id, queue.pk]) + (query or "?after=0")
        )
    return redirect(reverse("web:review_item", args=[queue.project_id, queue.pk, item.pk]) + query)


@login_required
@require_POST
def save(request: HttpRequest, project_id: int, queue_id: int, item_id: int) -> HttpResponse:
    """Done. A refusal shows the same page again with what was sent."""
    queue = queue_for_edit(request.user, project_id, queue_id)
    item = item_in(queue, item_id)
    sent = read_marks(queue, item, request.POST.dict())
    if item is None:
        return _gone(request, queue, item_id, sent, status=410)
    try:
        marking.save_marks(actor=_user(request), item=item, marks=sent)
    except ItemGone:
        return _gone(request, queue, item_id, sent, status=410)
    except SeatLost as exc:
        return _show(
            request,
            queue,
            item,
            sent=sent,
            trouble=f"Not saved: {exc} Your marks are kept on this page.",
            status=409,
        )
    except ReviewRefused as exc:
        return _show(request, queue, item, sent=sent, trouble=f"Not saved: {exc}", status=422)
    if request.POST.get("then") == "stay":
        messages.success(request, "Saved.")
        return redirect("web:review_item", project_id, queue.pk, item.pk)
    return _next(request, queue, after=item.pk)


@login_required
@require_POST
def reserve(request: HttpRequest, project_id: int, queue_id: int, item_id: int) -> HttpResponseBase:
    """Opens the item for the reader, or gives them the whole time again."""
    queue = queue_for_edit(request.user, project_id, queue_id)
    item = item_in(queue, item_id)
    try:
        if item is None:
            raise ItemGone
        seat = reservations.take(actor=_user(request), item=item)
    except ItemGone:
        return JsonResponse({"state": "gone", "message": _why_gone(queue, item_id)}, status=410)
    except SeatLost as exc:
        return JsonResponse({"state": "lost", "message": str(exc)}, status=409)
    return JsonResponse({"state": seat.state, "expires_at": seat.expires_at.isoformat()})


@login_required
@require_POST
def skip_item(request: HttpRequest, project_id: int, queue_id: int, item_id: int) -> HttpResponse:
    queue = queue_for_edit(request.user, project_id, queue_id)
    item = item_in(queue, item_id)
    if item is not None:
        reservations.skip(actor=_user(request), item=item)
        messages.success(request, f"Skipped {name_of(item)}. It goes on to others.")
    return _next(request, queue)


@login_required
@require_POST
def requeue_item(
    request: HttpRequest, project_id: int, queue_id: int, item_id: int
) -> HttpResponse:
    queue = queue_for_edit(request.user, project_id, queue_id)
    item = item_in(queue, item_id)
    if item is None:
        return _gone(request, queue, item_id, {}, status=410)
    services.requeue(actor=_user(request), item=item)
    messages.success(request, f"{name_of(item)} is at the end of the queue.")
    return _next(request, queue)


@login_required
@require_POST
def correct(request: HttpRequest, project_id: int, queue_id: int, item_id: int) -> HttpResponse:
    """The answer as it should have been; the rollout keeps its own."""
    queue = queue_for_edit(request.user, project_id, queue_id)
    item = item_in(queue, item_id)
    sent = read_marks(queue, item, request.POST.dict())
    if item is None:
        return _gone(request, queue, item_id, sent, status=410)
    try:
        made = marking.correct_answer(
            actor=_user(request), item=item, text=request.POST.get("correction", "")
        )
    except ReviewRefused as exc:
        return _show(request, queue, item, sent=sent, trouble=f"Not saved: {exc}", status=422)
    # The page again and not a redirect, so that marks not yet saved stay in the form.
    word = "The corrected answer is kept" if made else "The correction is removed"
    messages.success(request, f"{word}; the original answer stays as it was.")
    return _show(request, queue, item, sent=sent)


@login_required
@require_POST
def say(request: HttpRequest, project_id: int, queue_id: int, item_id: int) -> HttpResponse:
    """A comment for the other reviewers."""
    queue = queue_for_edit(request.user, project_id, queue_id)
    item = item_in(queue, item_id)
    sent = read_marks(queue, item, request.POST.dict())
    if item is None:
        return _gone(request, queue, item_id, sent, status=410)
    try:
        marking.comment(actor=_user(request), item=item, text=request.POST.get("comment", ""))
    except ReviewRefused as exc:
        return _show(request, queue, item, sent=sent, trouble=str(exc), status=422)
    return _show(request, queue, item, sent=sent)


def _gone(
    request: HttpRequest,
    queue: ReviewQueue,
    item_id: int,
    sent: Mapping[str, Mark],
    *,
    status: int,
) -> HttpResponse:
    """The item is elsewhere or nowhere: says so and keeps what was marked (rule RE-5)."""
    departure = queries.departure_of(queue, item_id)
    if departure is None:
        raise Http404("No such item.")
    scales = scales_of(queue.rubric_version.spec, queue.criteria)
    given = [
        {"scale": scale, "mark": mark, "label": _label(scale, mark)}
        for scale in scales
        if (mark := sent.get(scale.id)) is not None
    ]
    number = request.POST.get("rollout", "")
    rollout = queries.rollout_in(queue.project_id, int(number)) if number.isdecimal() else None
    return page(
        request,
        "web/review_gone.html",
        queue.project,
        "review",
        [
            Crumb("Review", reverse("web:review", args=[queue.project_id])),
            Crumb(queue.name, reverse("web:review_queue", args=[queue.project_id, queue.pk])),
            Crumb(departure.name),
        ],
        status=status,
        queue=queue,
        item_id=item_id,
        departure=departure,
        given=given,
        rollout=rollout,
        can_keep=rollout is not None and not is_pair(queue) and any(m.said for m in sent.values()),
    )


def _label(scale: Any, mark: Mark) -> str:
    return next((c.label for c in scale.choices if c.said == mark.said), mark.said) or "no value"


def _why_gone(queue: ReviewQueue, item_id: int) -> str:
    found = queries.departure_of(queue, item_id)
    return found.why if found else "This item is not in the queue any more."


@login_required
@require_POST
def keep(request: HttpRequest, project_id: int, queue_id: int, item_id: int) -> HttpResponse:
    """Marks of an item that is gone, kept as marks of its rollout."""
    queue = queue_for_edit(request.user, project_id, queue_id)
    number = request.POST.get("rollout", "")
    rollout = queries.rollout_in(project_id, int(number)) if number.isdecimal() else None
    if rollout is None:
        raise Http404("No such rollout.")
    sent = {c: m for c, m in read_marks(queue, None, request.POST.dict()).items() if m.said}
    try:
        n = marking.mark_rollout(
            actor=_user(request), rollout=rollout, version=queue.rubric_version, marks=sent
        )
    except ReviewRefused as exc:
        messages.error(request, f"Not saved: {exc}")
        return _gone(request, queue, item_id, sent, status=422)
    messages.success(request, f"{n} mark{'' if n == 1 else 's'} kept with the rollout.")
    return redirect("web:rollout", project_id, rollout.pk)


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "the views need a signed-in user"
    return request.user
