from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.harnesses.queries import harnesses_of_run
from orchestrator.review.queries import names_of_queues
from orchestrator.runs.activation import activations_in_run
from orchestrator.runs.models import RolloutState
from orchestrator.runs.queries import capacity_text, rollout_row, rollouts_of, tally
from orchestrator.runs.services import cancel_run
from orchestrator.web import access, queries
from orchestrator.web.figures import stacked
from orchestrator.web.frame import Crumb, page
from orchestrator.web.run_criteria import criteria_of_run

ROWS_PER_PAGE = 600
"""Rows of the live table in one page; more are reached by `after`."""


@login_required
@require_safe
def run_detail(request: HttpRequest, project_id: int, run_id: int) -> HttpResponse:
    run = access.run_for_view(request.user, project_id, run_id)
    # Read before the rows: what is appended meanwhile comes again by the feed and changes nothing.
    last_seq = run.stream.last_seq
    after = request.GET.get("after", "")
    rollouts = rollouts_of(run.pk)
    if after.isdecimal() and len(after) < 19:
        rollouts = rollouts.filter(pk__gt=int(after))
    shown = list(rollouts[: ROWS_PER_PAGE + 1])
    more, shown = len(shown) > ROWS_PER_PAGE, shown[:ROWS_PER_PAGE]
    counts = tally(run.pk)
    harnesses = harnesses_of_run(run.pk)
    return page(
        request,
        "web/run.html",
        run.project,
        "runs",
        [
            Crumb("Runs", reverse("web:runs", args=[project_id])),
            Crumb(f"Run {run.pk}", copy=str(run.pk)),
        ],
        run=run,
        tally=counts,
        capacity=capacity_text(run),
        bars=tally_bars(counts.planned, counts),
        rows=[rollout_row(rollout) for rollout in shown],
        next_after=shown[-1].pk if more else None,
        families=queries.families_of_run(run.pk),
        harnesses=harnesses,
        activation=activations_in_run(run, harnesses),
        climb_run=queries.climb_of_run(run.pk),
        last_seq=last_seq,
        states=RolloutState.values,
        run_criteria=criteria_of_run(run) if run.has_ended else [],
        queues=names_of_queues(project_id),
    )


def tally_bars(planned: int, counts: object) -> list[object]:
    """The stacked bar of a run: passed, failed, errored, n/a, cancelled, running."""
    passed = getattr(counts, "passed", 0)
    return list(
        stacked(
            [
                ("good", passed),
                ("bad", getattr(counts, "scored", 0) - passed),
                ("hatch", getattr(counts, "errored", 0)),
                ("na", getattr(counts, "not_applicable", 0)),
                ("off", getattr(counts, "cancelled", 0)),
                ("run", getattr(counts, "running", 0)),
            ],
            planned,
        )
    )


@login_required
@require_POST
def run_cancel(request: HttpRequest, project_id: int, run_id: int) -> HttpResponse:
    run = access.run_for_edit(request.user, project_id, run_id)
    cancel_run(actor=request.user, run=run)  # type: ignore[arg-type] # login_required
    messages.success(request, f"Run {run.pk} is being cancelled. What has a score keeps it.")
    return redirect("web:run", project_id, run_id)
