"""A rollout's trace to take away: JSON lines as stored, ATIF, OpenEnv's TrainingTrace."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_safe

from orchestrator.runs.models import Rollout
from orchestrator.traces.exports import NoExport, atif_of, training_traces_of
from orchestrator.traces.queries import jsonl_lines, outside_of
from orchestrator.web import access, queries


@login_required
@require_safe
def rollout_jsonl(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponseBase:
    """One event per line, all attempts: as stored, or as its producer sent it."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    owner = outside_of(rollout)
    lines = jsonl_lines(owner) if owner is not None else _stored_lines(rollout)
    response = StreamingHttpResponse(lines, content_type="application/x-ndjson; charset=utf-8")
    return _named(request, response, f"rollout-{rollout.pk}.jsonl")


@login_required
@require_safe
def rollout_atif(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponseBase:
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    try:
        response = HttpResponse(atif_of(rollout), content_type="application/json")
    except NoExport as error:
        return _refusal(error)
    return _named(request, response, f"rollout-{rollout.pk}.trajectory.json")


@login_required
@require_safe
def rollout_training_trace(
    request: HttpRequest, project_id: int, rollout_id: int
) -> HttpResponseBase:
    """One trace a line: one per row of tokens."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    try:
        lines = "".join(f"{trace}\n" for trace in training_traces_of(rollout))
    except NoExport as error:
        return _refusal(error)
    response = HttpResponse(lines, content_type="application/x-ndjson; charset=utf-8")
    return _named(request, response, f"rollout-{rollout.pk}.training-trace.jsonl")


def _stored_lines(rollout: Rollout) -> Iterator[str]:
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


def _refusal(error: NoExport) -> HttpResponse:
    return HttpResponse(f"{error}\n", status=409, content_type="text/plain; charset=utf-8")


def _named(request: HttpRequest, response: HttpResponseBase, name: str) -> HttpResponseBase:
    if "download" in request.GET:
        response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
