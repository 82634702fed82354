"""`Red team`: attack the rubric, read what got paid, keep a finding as a golden case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.grading import queries
from orchestrator.grading.errors import AttackRefused
from orchestrator.grading.models import RedTeamReport, RubricDraft
from orchestrator.grading.redteam.queries import effort_of, report, reports_of, whole_report
from orchestrator.grading.redteam.services import (
    DEFAULT_BASES,
    DEFAULT_CAP_USD,
    MAX_BASES,
    OPEN_STATES,
    attack_rubric,
    cancel_attack,
    make_golden_case,
)
from orchestrator.projects.access import role_in
from orchestrator.projects.models import Role
from orchestrator.web.frame import page
from orchestrator.web.rubric_access import rubric_for_edit, rubric_for_view
from orchestrator.web.rubric_tabs import tabs_of
from orchestrator.web.views.rubric_editor import rubric_crumbs, user_of
from rubrics.models import Rubric, RubricVersion

DRAFT = "draft"
FAMILY_WORDS = {
    "empty": "Nothing was done",
    "echo": "Echo of the rubric or the task",
    "injection": "Words to the judge",
    "persuasion": "Claims and manners",
    "length": "Padded answers",
    "order": "Another order",
    "repetition": "The same again",
    "fact": "Key fact wrong",
}


@login_required
@require_safe
def rubric_redteam(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = rubric_for_view(request.user, project_id, rubric_id)
    history = reports_of(rubric)
    asked = request.GET.get("report", "")
    newest = next((r for r in history if str(r.pk) == asked), history[0] if history else None)
    shown = whole_report(rubric, newest.pk) if newest is not None else None
    items = _items(request, rubric)
    first = next(iter(items.values()), None)
    numbers = shown.summary.get("numbers") if shown is not None else None
    return page(
        request,
        "web/redteam.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "Red team"),
        rubric=rubric,
        tabs=tabs_of(rubric, "web:rubric_redteam"),
        items=list(items),
        effort=effort_of(first.spec, DEFAULT_BASES) if first is not None else None,
        defaults={"bases": DEFAULT_BASES, "cap": DEFAULT_CAP_USD, "max_bases": MAX_BASES},
        history=history,
        shown=shown,
        is_running=shown is not None and shown.state in OPEN_STATES,
        found=report(shown) if shown is not None else None,
        numbers=numbers,
        families=[
            {**row, "words": FAMILY_WORDS.get(row["family"], row["family"])}
            for row in (numbers or {}).get("families", [])
            if row["n"] or row["errored"]
        ],
        spent=shown.summary.get("spent") if shown is not None else None,
    )


def _items(request: HttpRequest, rubric: Rubric) -> Mapping[str, RubricDraft | RubricVersion]:
    """What can be attacked: the draft, for editors, and the versions, newest first."""
    found: dict[str, Any] = {}
    if role_in(request.user, rubric.project_id) in (Role.EDITOR, Role.ADMIN):
        draft = queries.draft_of(rubric)
        if draft is not None:
            found[DRAFT] = draft
    return found | {str(v.number): v for v in queries.versions_of(rubric)}


@login_required
@require_POST
def redteam_start(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = rubric_for_edit(request.user, project_id, rubric_id)
    item = _items(request, rubric).get(request.POST.get("item", ""))
    try:
        if item is None:
            raise AttackRefused("There is no such version. Choose another one.")
        started = attack_rubric(
            actor=user_of(request),
            rubric=rubric,
            spec=item.spec,
            version=item if isinstance(item, RubricVersion) else None,
            n_bases=int(_number(request.POST.get("bases", ""), "rollouts")),
            cap_usd=_number(request.POST.get("cap", ""), "dollars"),
        )
    except AttackRefused as refused:
        messages.error(request, str(refused))
        return redirect("web:rubric_redteam", project_id, rubric_id)
    return _to(started)


@login_required
@require_POST
def redteam_cancel(
    request: HttpRequest, project_id: int, rubric_id: int, report_id: int
) -> HttpResponse:
    found = _for_edit(request, project_id, rubric_id, report_id)
    cancel_attack(actor=user_of(request), report=found)
    messages.success(request, "The attack is being cancelled. What it found stays.")
    return _to(found)


@login_required
@require_POST
def redteam_golden(
    request: HttpRequest, project_id: int, rubric_id: int, report_id: int
) -> HttpResponse:
    found = _for_edit(request, project_id, rubric_id, report_id)
    number = request.POST.get("number", "")
    try:
        case = make_golden_case(
            actor=user_of(request),
            report=found,
            number=int(number) if number.isdecimal() and len(number) < 7 else -1,
        )
    except AttackRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, f"“{case.name}” must fail from now on; publishing checks it.")
    return _to(found)


def _for_edit(
    request: HttpRequest, project_id: int, rubric_id: int, report_id: int
) -> RedTeamReport:
    rubric = rubric_for_edit(request.user, project_id, rubric_id)
    try:
        return whole_report(rubric, report_id)
    except RedTeamReport.DoesNotExist:
        raise Http404("There is no such attack.") from None


def _to(found: RedTeamReport) -> HttpResponse:
    address = reverse("web:rubric_redteam", args=[found.rubric.project_id, found.rubric_id])
    return redirect(f"{address}?report={found.pk}")


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e9:
        raise AttackRefused(f"“{text[:20]}” is not a number of {what}.")
    return value
