"""Golden cases of a rubric: what they say of the draft, and how they are added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.grading import golden, regrade_queries
from orchestrator.grading.errors import GoldenRefused
from orchestrator.grading.writing import writing_of
from orchestrator.projects.access import role_in
from orchestrator.projects.models import Role
from orchestrator.web import regrade_access
from orchestrator.web import rubric_access as access
from orchestrator.web.frame import page
from orchestrator.web.rubric_tabs import tabs_of
from orchestrator.web.views.rubric_editor import rubric_crumbs, user_of
from orchestrator.web.views.rubric_preview import criteria_named
from rubrics.models import Rubric
from rubrics.types import Step, Transcript

MAX_TYPED = 100_000
"""Characters of one field."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def rubric_golden(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """POST asks models too, for the cases that need one."""
    rubric = access.rubric_for_view(request.user, project_id, rubric_id)
    with_judges = request.method == "POST"
    if with_judges and role_in(request.user, project_id) == Role.VIEWER:
        raise PermissionDenied("Asking a model needs the role editor in the project.")
    return _page(request, rubric, with_judges=with_judges)


def _page(
    request: HttpRequest,
    rubric: Rubric,
    *,
    with_judges: bool = False,
    typed: Mapping[str, str] | None = None,
    refusal: str = "",
) -> HttpResponse:
    writing = writing_of(rubric)
    cases = golden.cases_of(rubric)
    report = golden.run_golden(
        rubric.project_id, writing.spec or {}, cases, with_judges=with_judges
    )
    return page(
        request,
        "web/rubric_golden.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "Golden"),
        status=422 if refusal else 200,
        rubric=rubric,
        tabs=tabs_of(rubric, "web:rubric_golden"),
        writing=writing,
        report=report,
        criteria=criteria_named(writing.spec),
        typed=typed or {},
        refusal=refusal,
    )


@login_required
@require_POST
def golden_add(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """From a rollout (`rollout`), else of what was typed."""
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    sent = request.POST
    fields: dict[str, Any] = {
        "actor": user_of(request),
        "rubric": rubric,
        "name": sent.get("name", ""),
        "expect": sent.get("expect", ""),
        "criterion": sent.get("criterion", "")[:64],
    }
    digits = sent.get("rollout", "")
    try:
        if digits:
            known = digits.isdecimal() and len(digits) < 19
            rollout = regrade_queries.past_rollout(project_id, int(digits)) if known else None
            if rollout is None:
                raise GoldenRefused("There is no such rollout.")
            case = golden.add_from_rollout(rollout=rollout, **fields)
        else:
            case = golden.add_typed(transcript=_typed(sent), **fields)
    except GoldenRefused as refusal:
        return _page(request, rubric, typed=sent.dict(), refusal=str(refusal))
    messages.success(request, f"Golden case {case.name} is kept.")
    return redirect("web:rubric_golden", project_id, rubric_id)


def _typed(sent: Mapping[str, str]) -> Transcript | Mapping[str, Any]:
    """A transcript as JSON, or an answer with commands before it. Raises GoldenRefused."""
    if any(len(value) > MAX_TYPED for value in sent.values()):
        raise GoldenRefused(f"A field takes {MAX_TYPED:,} characters.")
    raw = sent.get("json", "").strip()
    if raw:
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as exc:
            raise GoldenRefused(f"The transcript is not JSON: {exc}.") from None
        if not isinstance(value, Mapping):
            raise GoldenRefused("The transcript is not a JSON object.")
        return value
    answer = sent.get("answer", "")
    commands = [line for line in sent.get("commands", "").splitlines() if line.strip()]
    steps = [
        Step(index, 2 * index + 1, command, command=command)
        for index, command in enumerate(commands, start=1)
    ]
    last = len(steps) + 1
    has_answer = "no_answer" not in sent
    if has_answer:
        steps.append(Step(last, 2 * last + 1, answer, answer=answer, done=True))
    return Transcript(
        steps=tuple(steps),
        answer=answer if has_answer else None,
        expected=sent.get("expected") or None,
        reward=_reward(sent.get("reward", "")),
        task=sent.get("task", ""),
    )


def _reward(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1:
        raise GoldenRefused("The environment's reward is a number from 0 to 1, or nothing.")
    return value


@login_required
@require_POST
def golden_remove(
    request: HttpRequest, project_id: int, rubric_id: int, case_id: int
) -> HttpResponse:
    case = regrade_access.case_for_edit(request.user, project_id, rubric_id, case_id)
    golden.remove_case(actor=user_of(request), case=case)
    messages.success(request, f"Golden case {case.name} is removed.")
    return redirect(reverse("web:rubric_golden", args=[project_id, rubric_id]))
