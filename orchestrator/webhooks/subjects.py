"""Whose stream an event is on, and where that is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import NoReverseMatch, reverse

from optimizer.models import Search
from orchestrator.climbs.models import Climb
from orchestrator.gates.models import Gate
from orchestrator.runs.models import Run
from training.models import TrainingJob


@dataclass(frozen=True)
class Subject:
    kind: str
    id: int
    label: str
    page: str
    """Name of its page."""


_OWNERS: dict[str, tuple[type[Any], str]] = {
    "run": (Run, "run"),
    "climb": (Climb, "climb"),
    "search": (Search, "search"),
    "gate": (Gate, "gate"),
    "training_job": (TrainingJob, "training_job"),
}


def subject_of(stream_kind: str, stream_id: int) -> Subject | None:
    known = _OWNERS.get(stream_kind)
    if known is None:
        return None
    model, page = known
    row = model.objects.filter(stream_id=stream_id).first()
    if row is None:
        return None
    label = getattr(row, "label", "") or getattr(row, "name", "") or f"{stream_kind} {row.pk}"
    return Subject(stream_kind, row.pk, str(label), page)


def address_of(subject: Subject, project_id: int) -> str:
    """Absolute where `SWITCHBACK_URL` says under which name the pages are reached."""
    try:
        path = reverse(f"web:{subject.page}", args=[project_id, subject.id])
    except NoReverseMatch:
        return ""
    return f"{settings.PUBLIC_URL.rstrip('/')}{path}"
