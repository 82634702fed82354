"""The token ledger of a rollout, and asking a checkpoint what it expected of the tokens."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.projects.access import project_for_edit
from orchestrator.trainings import lens
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.learned import weights_of
from orchestrator.trainings.project_queries import checkpoints_in
from orchestrator.web import access, queries
from orchestrator.web.frame import Crumb, page
from orchestrator.web.ledger import first_of_interest, stretches, sums
from training.models import Checkpoint

PAGE_TOKENS = 2_000
"""Of a row, in one page."""


@login_required
@require_safe
def rollout_ledger(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    kept = lens.checkpoints_for(rollout)
    before, after = (
        None if chosen is None else lens.view(rollout, chosen)
        for chosen in (_chosen(request, kept, "before"), _chosen(request, kept, "after"))
    )
    rows = queries.token_rows(rollout.pk)
    number = min(_number(request, "row"), max(0, len(rows) - 1))
    weights = weights_of(rollout)
    parts = []
    if rows:
        parts = stretches(
            rows[number].index,
            rows[number],
            advantage=weights.advantage,
            coefficient=weights.coefficient,
            before=None if before is None else before.rows,
            after=None if after is None else after.rows,
        )
    total = sum(len(part.entries) for part in parts)
    entries = [entry for part in parts for entry in part.entries]
    start = min(_number(request, "from"), max(0, total - 1))
    if "from" not in request.GET:
        start = first_of_interest(entries)
    looks = [each for each in (before, after) if each is not None]
    return page(
        request,
        "web/ledger.html",
        rollout.run.project,
        "runs",
        [
            Crumb("Runs", reverse("web:runs", args=[project_id])),
            Crumb(f"Run {rollout.run_id}", reverse("web:run", args=[project_id, rollout.run_id])),
            Crumb(
                f"{rollout.task.key} #{rollout.replicate}",
                reverse("web:rollout", args=[project_id, rollout_id]),
            ),
            Crumb("Token ledger"),
        ],
        rollout=rollout,
        rows=rows,
        row=rows[number] if rows else None,
        number=number,
        weights=weights,
        kept=kept,
        before=before,
        after=after,
        looks=looks,
        is_waiting=any(each.state in ("queued", "running") for each in looks),
        sums=sums(parts),
        entries=entries[start : start + PAGE_TOKENS],
        total=total,
        start=start,
        end=min(total, start + PAGE_TOKENS),
        earlier=max(0, start - PAGE_TOKENS) if start else None,
        later=start + PAGE_TOKENS if start + PAGE_TOKENS < total else None,
    )


@login_required
@require_POST
def ledger_look(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    """Asks for a checkpoint's look, or with `do=cancel` ends one."""
    project_for_edit(request.user, project_id)
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    text = request.POST.get("checkpoint", "")
    checkpoint = get_object_or_404(
        checkpoints_in(project_id),
        pk=int(text) if text.isdecimal() and text.isascii() and len(text) < 16 else 0,
    )
    act = lens.cancel if request.POST.get("do") == "cancel" else lens.start
    try:
        act(actor=request.user, rollout=rollout, checkpoint=checkpoint)  # type: ignore[arg-type] # login_required
    except TrainingRefused as refused:
        messages.error(request, str(refused))
    query = {name: request.POST[name] for name in ("before", "after") if request.POST.get(name)}
    address = reverse("web:rollout_ledger", args=[project_id, rollout_id])
    asked = "&".join(f"{name}={value}" for name, value in query.items() if value.isdecimal())
    return redirect(f"{address}?{asked}" if asked else address)


def _chosen(request: HttpRequest, kept: list[Checkpoint], name: str) -> Checkpoint | None:
    return next((each for each in kept if str(each.pk) == request.GET.get(name)), None)


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0
