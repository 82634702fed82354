"""A rollout's page and what it asks for: windows of its trace, outline, finds, single events."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
)
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from orchestrator.review.queries import names_of_queues
from orchestrator.runs.models import Rollout
from orchestrator.runs.queries import rollout_detail
from orchestrator.traces.exact import parse
from orchestrator.web import access, queries, trace_queries
from orchestrator.web.explain import explanations
from orchestrator.web.figures import stacked
from orchestrator.web.frame import Crumb, page
from orchestrator.web.rubric import negative_criteria
from orchestrator.web.trace_index import read_seqs
from orchestrator.web.trace_media import split_media
from orchestrator.web.trace_opened import pretty
from orchestrator.web.trace_page import (
    FIRST_CHARS,
    FIRST_EVENTS,
    WINDOW_CHARS,
    Drawing,
    cited_verdicts,
    outline,
    slots,
)
from orchestrator.web.trace_tokens import TRAINED_KINDS, token_spans

TOKEN_KINDS = ("context", "action", "env_output", "warning", "scaffold", "pad")
_MODULES = (
    "feed",
    "parts",
    "rollout",
    "tabs",
    *(
        f"trace_{part}"
        for part in (
            "view",
            "index",
            "window",
            "heights",
            "store",
            "folds",
            "outline",
            "lane",
            "find",
        )
    ),
)
TRACE_MODULES = [f"js/{name}.js" for name in _MODULES]
"""Asked for by the head of the page: imported one by one they would take five rounds."""
MOST_TOKENS_SHOWN = 3_000
"""Of a rollout, one by one in the first answer."""


@login_required
@require_safe
def rollout_page(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    detail = rollout_detail(rollout.pk)
    shown, run = detail.rollout, detail.rollout.run
    index = trace_queries.index_of(shown.stream_id)
    negatives = negative_criteria(run.rubric_version.spec)
    chosen = [kind for kind in request.GET.getlist("kind") if kind in index.counts]
    seqs = index.seqs_of(chosen)
    start = _start(request, seqs, index.first_of_last_attempt if not chosen else 0)
    cited = cited_verdicts(detail.verdicts, negatives)
    drawing = Drawing(project_id, rollout_id, shown.n_steps, negatives, cited)
    events = trace_queries.events_at(shown.stream_id, seqs[start : start + FIRST_EVENTS])
    cards, lines = slots(events, drawing, budget_chars=FIRST_CHARS)
    end = start + len(cards)
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
        index=index,
        index_json=index.as_json(),
        chosen=chosen,
        cards=[mark_safe(card) for card in cards],
        lines=[mark_safe(line) for line in lines],
        n_shown=len(cards),
        n_events=len(seqs),
        first_position=start,
        earlier_seq=seqs[max(0, start - FIRST_EVENTS)] if start else None,
        later_seq=seqs[end] if end < len(seqs) else None,
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
        token_rows=[(row, token_spans(row)) for row in queries.token_rows(shown.pk)]
        if total_tokens <= MOST_TOKENS_SHOWN
        else [],
        last_seq=index.last_seq,
        is_live=shown.state in ("pending", "running", "judging"),
        lost_since=trace_queries.lost_since(shown),
        queues=names_of_queues(project_id),
        trace_modules=TRACE_MODULES,
    )


def _start(request: HttpRequest, seqs: list[int], usual: int) -> int:
    """Position of the first card: a reader without scripts turns pages by `?from=`."""
    text = request.GET.get("from", "")
    if not (text.isdecimal() and text.isascii() and len(text) < 16):
        return min(usual, max(0, len(seqs) - 1))
    first = int(text)
    return next((i for i, seq in enumerate(seqs) if seq >= first), max(0, len(seqs) - 1))


@login_required
@require_safe
def rollout_cards(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    """The cards `?seqs=7,9-12`, as many as fit into one answer; or those `?after=` a number."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    drawing = _drawing(request, rollout)
    cards, _ = slots(_asked(request, rollout), drawing, budget_chars=WINDOW_CHARS)
    return HttpResponse("".join(cards))


@login_required
@require_safe
def rollout_outline(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    return HttpResponse("".join(outline(_asked(request, rollout), _drawing(request, rollout))))


@login_required
@require_safe
def rollout_index(request: HttpRequest, project_id: int, rollout_id: int) -> JsonResponse:
    """The skeleton again: for a trace whose order is not that of arrival."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    return JsonResponse(trace_queries.index_of(rollout.stream_id).as_json())


@login_required
@require_safe
def rollout_find(request: HttpRequest, project_id: int, rollout_id: int) -> JsonResponse:
    """Numbers of the events that hold `?q=`, in the order of the log."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    wanted = request.GET.get("q", "")[:200]
    seqs = trace_queries.find_in_trace(rollout.stream_id, wanted, request.GET.getlist("kind"))
    return JsonResponse({"seqs": seqs, "is_cut": len(seqs) == trace_queries.MOST_HITS})


@login_required
@require_safe
def rollout_event(
    request: HttpRequest, project_id: int, rollout_id: int, seq: int
) -> HttpResponseBase:
    """One event as it is stored; with `?as=text` its text alone, with `?as=raw` for the pane."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    event = trace_queries.event_at(rollout.stream_id, seq)
    if event is None:
        raise Http404("this rollout has no such event")
    form = request.GET.get("as", "")
    if form == "raw":
        drawing = Drawing(project_id, rollout_id, rollout.n_steps, is_raw=True, is_whole=True)
        return render(request, "web/trace/raw.html", {"card": drawing.card(event)})
    if form == "text":
        stored = trace_queries.stored_outside(rollout.stream_id, seq)
        payload = event.payload if stored is None else parse(stored).get("content")
        text = _text(payload).encode(errors="replace")
        response = HttpResponse(text, content_type="text/plain; charset=utf-8")
        name = f"rollout-{rollout.pk}-event-{seq}.txt"
    else:
        record = {"seq": event.seq, "kind": event.kind, "at": event.at.isoformat()}
        body = json.dumps({"rollout": rollout.pk, **record, "payload": event.payload})
        response = HttpResponse(body, content_type="application/json")
        name = f"rollout-{rollout.pk}-event-{seq}.json"
    if "download" in request.GET:
        response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@login_required
@require_safe
def rollout_media(
    request: HttpRequest, project_id: int, rollout_id: int, seq: int, number: int
) -> HttpResponse:
    """A picture of an event, of the few formats that are drawn; anything else is a download."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    event = trace_queries.event_at(rollout.stream_id, seq)
    media = split_media(event.payload)[1] if event is not None else []
    content = media[number].decoded() if number < len(media) else None
    if content is None:
        raise Http404("this event has no such picture")
    medium = media[number]
    kind = medium.type if medium.is_drawn else "application/octet-stream"
    response = HttpResponse(content, content_type=kind)
    response["Cache-Control"] = "private, max-age=3600"
    if not medium.is_drawn:
        response["Content-Disposition"] = f'attachment; filename="event-{seq}-{number}.bin"'
    return response


def _drawing(request: HttpRequest, rollout: Rollout) -> Drawing:
    negatives = negative_criteria(rollout.run.rubric_version.spec)
    return Drawing(
        rollout.run.project_id,
        rollout.pk,
        rollout.n_steps,
        negatives,
        cited_verdicts(rollout.verdicts.all(), negatives),
        is_raw="raw" in request.GET,
        is_whole="whole" in request.GET,
    )


def _asked(request: HttpRequest, rollout: Rollout) -> list[Any]:
    if "seqs" in request.GET:
        seqs = read_seqs(request.GET["seqs"])
        return list(trace_queries.events_at(rollout.stream_id, seqs))
    after = request.GET.get("after", "0")
    seq = int(after) if after.isdecimal() and after.isascii() and len(after) < 16 else 0
    return queries.events_of(rollout.stream_id, after=seq, limit=200)


def _text(payload: Any) -> str:
    """What a reader would copy: the text of an action, an output, a message; else JSON."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict):
        segments = payload.get("segments")
        if isinstance(segments, list):
            return "\n".join(str(s.get("text") or "") for s in segments if isinstance(s, dict))
        for name in ("command", "answer", "text", "content", "prompt"):
            if isinstance(payload.get(name), str) and payload[name]:
                return str(payload[name])
    return pretty(payload)
