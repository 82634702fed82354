"""Gates: the list, one of them, and its end by hand."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from orchestrator.gates.access import gate_for_edit, gate_for_view
from orchestrator.gates.errors import GateEnded
from orchestrator.gates.queries import list_gates
from orchestrator.gates.services import cancel_gate
from orchestrator.projects.access import project_for_view
from orchestrator.projects.models import User
from orchestrator.web.frame import Crumb, page
from orchestrator.web.gate_page import card_of, view_of
from orchestrator.web.run_tabs import tabs_of

PER_PAGE = 50


@login_required
@require_safe
def gate_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    before = request.GET.get("before", "")
    before_id = (
        int(before) if before.isascii() and before.isdecimal() and len(before) < 16 else None
    )
    gates = list_gates(project.pk, before_id=before_id, limit=PER_PAGE + 1)
    return page(
        request,
        "web/gates.html",
        project,
        "runs",
        [Crumb("Gates")],
        tabs=tabs_of(project.pk, "web:gates"),
        rows=[card_of(gate) for gate in gates[:PER_PAGE]],
        before_id=gates[PER_PAGE - 1].pk if len(gates) > PER_PAGE else None,
        is_later_page=before_id is not None,
    )


@login_required
@require_safe
def gate_page(request: HttpRequest, project_id: int, gate_id: int) -> HttpResponse:
    gate = gate_for_view(request.user, project_id, gate_id)
    return page(
        request,
        "web/gate.html",
        gate.project,
        "runs",
        [Crumb("Gates", f"/p/{project_id}/gates/"), Crumb(f"Gate {gate.pk}", copy=str(gate.pk))],
        gate=gate,
        view=view_of(gate),
    )


@login_required
@require_POST
def gate_cancel(request: HttpRequest, project_id: int, gate_id: int) -> HttpResponse:
    gate = gate_for_edit(request.user, project_id, gate_id)
    assert isinstance(request.user, User), "nobody else passed the line above"
    try:
        cancel_gate(actor=request.user, gate=gate)
        messages.success(request, "The gate is cancelled. What was measured stays.")
    except GateEnded as ended:
        messages.error(request, str(ended))
    return redirect("web:gate", project_id, gate_id)
