"""The ladder as a file: a self-contained page, or Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from orchestrator.climbs.models import Climb
from orchestrator.climbs.queries import LadderView, ladder
from orchestrator.web import access, queries
from orchestrator.web.climb_report import Report, markdown, stands_of, why_between
from orchestrator.web.exported import styles
from orchestrator.web.figures import NARROW, WIDE, climb_figure
from orchestrator.web.ladder import (
    ComponentDiff,
    edit_rows,
    harness_diff,
    rung_rows,
    training_curves,
)

STYLES = ("tokens", "base", "card", "pill", "table", "ladder", "search", "certificate")
EDITS = 20
"""Edits in the report, strongest first."""


@login_required
@require_safe
def climb_report(request: HttpRequest, project_id: int, climb_id: int, form: str) -> HttpResponse:
    climb = access.climb_for_view(request.user, project_id, climb_id)
    address = request.build_absolute_uri(reverse("web:climb", args=[project_id, climb.pk]))
    report = _report(ladder(climb.pk), address)
    if form == "md":
        response = HttpResponse(markdown(report), content_type="text/markdown; charset=utf-8")
    else:
        names = [row.name for row in report.rungs]
        rungs = report.view.rungs
        response = HttpResponse(
            render_to_string(
                "web/climb_report.html",
                {
                    "report": report,
                    "climb": report.climb,
                    "rungs": report.rungs,
                    "figure": climb_figure(rungs, names, WIDE),
                    "narrow": climb_figure(rungs, names, NARROW),
                    "styles": styles(*STYLES),
                },
            )
        )
    name = f"climb-{climb.pk}-{slugify(climb.name) or 'report'}.{form}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _report(view: LadderView, address: str) -> Report:
    rungs = rung_rows(view.rungs, why_between(view.rungs, view.decisions, view.climb))
    return Report(
        view=view,
        rungs=rungs,
        stands=stands_of(rungs),
        edits=edit_rows(view.edits)[:EDITS],
        curves=training_curves(view.training),
        harness=_changed(view.climb, view),
        address=address,
        made_at=timezone.now(),
    )


def _changed(climb: Climb, view: LadderView) -> list[Mapping[str, Any]]:
    """Components of the newest harness that are not as in the seed, as plain lines with marks."""
    rung = next(
        (r for r in view.rungs if r.harness_id and r.harness_id != climb.seed_harness_id), None
    )
    if rung is None:
        return []
    texts = queries.harness_texts([climb.seed_harness_id, rung.harness_id])
    before, after = texts.get(climb.seed_harness_id, {}), texts.get(rung.harness_id or 0, {})
    return [
        {"key": each.key, "word": each.word, "text": _plain(each)}
        for each in harness_diff(before, after)
        if each.word != "unchanged"
    ]


def _plain(component: ComponentDiff) -> str:
    if component.demonstrations:
        return "\n".join(
            f"{'+' if demo.is_new else ' '}{message['role']}: {message['content']}"
            for demo in component.demonstrations
            for message in demo.messages
        )
    return "\n".join(
        "@@" if line.mark == "@" else f"{line.mark or ' '}{line.text}" for line in component.lines
    )
