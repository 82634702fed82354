"""Reads of what was not taken in: items with their reasons, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.runs.models import Run
from orchestrator.traces.models import RefusedItem

REASONS = {
    "bad_encoding": "not UTF-8",
    "bad_json": "no JSON object",
    "bad_span": "no span",
    "id_conflict": "other content under a known id",
    "missing_field": "a field is missing",
    "too_deep": "nested too deeply",
    "too_large": "too large",
    "unknown_project": "unknown project",
}
"""Each `reason_kind` in words."""
PER_PAGE = 50


@dataclass(frozen=True)
class RefusedRow:
    item: RefusedItem
    reason: str


@dataclass(frozen=True)
class RefusedPage:
    rows: Sequence[RefusedRow]
    next_before: int | None
    total: int
    """Of the project, whatever the filter."""
    run_id: int | None
    """The run that imported rollouts belong to; None before the first."""


def refused_page(project_id: int, *, reason: str = "", before_id: int | None = None) -> RefusedPage:
    """Three queries; `before_id` is the keyset of the next page."""
    everything = RefusedItem.objects.filter(project_id=project_id)
    items = everything.filter(reason_kind=reason) if reason else everything
    if before_id is not None:
        items = items.filter(pk__lt=before_id)
    found = list(items.order_by("-pk")[: PER_PAGE + 1])
    rows = [RefusedRow(i, REASONS.get(i.reason_kind, i.reason_kind)) for i in found[:PER_PAGE]]
    run = Run.objects.filter(key=run_key(project_id)).values_list("pk", flat=True).first()
    return RefusedPage(
        rows=rows,
        next_before=rows[-1].item.pk if len(found) > PER_PAGE else None,
        total=everything.count(),
        run_id=run,
    )


def run_key(project_id: int) -> str:
    """Names the run *Imported traces* of a project."""
    return f"outside-{project_id}"
