from __future__ import annotations

import json
from collections.abc import Iterator

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.review.queries import names_of_queues
from orchestrator.runs.queries import rollout_detail
from orchestrator.web import access, queries
from orchestrator.web.explain import explanations
from orchestrator.web.figures import stacked
from orchestrator.web.frame import Crumb, page
from orchestrator.web.rubric import negative_criteria
from orchestrator.web.trace import TRAINED_KINDS, build_card, build_trace, token_spans

TOKEN_KINDS = ("context", "action", "env_output", "warning", "scaffold", "pad")


@login_required
@require_safe
def rollout_page(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    detail = rollout_detail(rollout.pk)
    shown = detail.rollout
    events = queries.events_of(shown.stream_id)
    negatives = negative_criteria(shown.run.rubric_version.spec)
    attempts = build_trace(events, negatives)
    run = shown.run
    total_tokens = sum(detail.token_counts.values())
    return page(
        request,
        "web/rollout.html",
        run.project,
        "runs",
        [
            Crumb("Runs", reverse("web:runs", args=[project_id])),
            Crumb(f"Run {run.pk}", reverse("web:run", args=[project_id, run.pk])),
            Crumb(f"{shown.task.key} #{shown.replicate}", copy=str(shown.pk)),
        ],
        run=run,
        rollout=shown,
        detail=detail,
        attempts=attempts,
        current=attempts[-1],
        earlier=[attempt for attempt in attempts[:-1] if attempt.cards],
        verdicts=detail.verdicts,
        explained=explanations(run.project_id, run.rubric_version.spec, detail.verdicts),
        negatives=negatives,
        token_kinds=[
            {
                "kind": kind,
                "count": detail.token_counts[kind],
                "is_trained": kind in TRAINED_KINDS,
                "share": 100 * detail.token_counts[kind] / total_tokens,
            }
            for kind in TOKEN_KINDS
            if detail.token_counts.get(kind)
        ],
        token_bars=stacked(
            [(kind, detail.token_counts.get(kind, 0)) for kind in TOKEN_KINDS], total_tokens
        ),
        token_total=total_tokens,
        token_rows=[(row, token_spans(row)) for row in queries.token_rows(shown.pk)],
        last_seq=events[-1].seq if events else 0,
        is_live=shown.state in ("pending", "running", "judging"),
        queues=names_of_queues(project_id),
    )


@login_required
@require_safe
def rollout_cards(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    """Cards after a sequence number, for a page that follows a running rollout."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    after = request.GET.get("after", "0")
    seq = int(after) if after.isdecimal() and len(after) < 19 else 0
    negatives = negative_criteria(rollout.run.rubric_version.spec)
    events = queries.events_of(rollout.stream_id, after=seq, limit=500)
    cards = [build_card(event, negatives) for event in events]
    return render(request, "web/trace/cards.html", {"cards": cards, "with_outline": True})


@login_required
@require_safe
def rollout_jsonl(request: HttpRequest, project_id: int, rollout_id: int) -> StreamingHttpResponse:
    """The trace as stored, one event per line, all attempts."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)

    def lines() -> Iterator[str]:
        after = 0
        while batch := queries.events_of(rollout.stream_id, after=after, limit=500):
            for event in batch:
                record = {
                    "rollout": rollout.pk,
                    "seq": event.seq,
                    "kind": event.kind,
                    "at": event.at.isoformat(),
                    "payload": event.payload,
                }
                yield json.dumps(record) + "\n"
            after = batch[-1].seq

    response = StreamingHttpResponse(lines(), content_type="application/x-ndjson; charset=utf-8")
    if "download" in request.GET:
        response["Content-Disposition"] = f'attachment; filename="rollout-{rollout.pk}.jsonl"'
    return response
