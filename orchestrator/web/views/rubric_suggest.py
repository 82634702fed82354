"""Criteria drafted by a model, for the authoring page: asked for, followed, settled."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.agents.queries import endpoints_in
from orchestrator.environments.queries import versions_in
from orchestrator.grading.errors import DraftRefused
from orchestrator.grading.models import RubricSuggestion
from orchestrator.grading.queries import suggestions_in
from orchestrator.grading.suggest import services
from orchestrator.web import rubric_access as access
from orchestrator.web import rubric_editor as editor
from orchestrator.web.views.rubric_editor import user_of


@login_required
@require_POST
def rubric_suggest(request: HttpRequest, project_id: int, rubric_id: int) -> JsonResponse:
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    endpoint = get_object_or_404(endpoints_in(project_id), pk=_number(request, "endpoint"))
    version = get_object_or_404(versions_in(project_id), pk=_number(request, "environment"))
    try:
        asked = services.ask_for_suggestions(
            actor=user_of(request),
            rubric=rubric,
            endpoint=endpoint,
            environment_version=version,
            n_traces=_number(request, "traces"),
        )
    except DraftRefused as refusal:
        return JsonResponse({"error": str(refusal)}, status=422)
    return JsonResponse(editor.suggestion(asked))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def rubric_suggestion(
    request: HttpRequest, project_id: int, rubric_id: int, suggestion_id: int
) -> JsonResponse:
    """POST {"action": "cancel"}, or {"action": "taken" or "dismissed", "number"}."""
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    suggestions = suggestions_in(project_id)
    found = get_object_or_404(suggestions, rubric=rubric, pk=suggestion_id)
    if request.method == "POST":
        try:
            _act(request, found)
        except DraftRefused as refusal:
            return JsonResponse({"error": str(refusal)}, status=422)
        found = suggestions.get(pk=found.pk)
    return JsonResponse(editor.suggestion(found))


def _act(request: HttpRequest, suggestion: RubricSuggestion) -> None:
    action: Any = request.POST.get("action")
    if action == "cancel":
        services.cancel_suggestion(actor=user_of(request), suggestion=suggestion)
    else:
        services.settle(
            actor=user_of(request),
            suggestion=suggestion,
            number=_number(request, "number"),
            how=str(action),
        )


def _number(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else -1
