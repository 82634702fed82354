"""Reads the audit log of a project, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from orchestrator.projects.models import AuditEntry

PAGE = 50


@dataclass(frozen=True)
class AuditPage:
    entries: list[AuditEntry]
    before_id: int | None
    """Continues with older entries; None at the end."""


def audit_page(
    project_id: int,
    *,
    who: str = "",
    about: str = "",
    refused: bool = False,
    before_id: int | None = None,
) -> AuditPage:
    """`who`: a user name; `about`: part of an address or of its name; `refused`: only those."""
    rows = _matching(project_id, who=who, about=about, refused=refused)
    if before_id is not None:
        rows = rows.filter(pk__lt=before_id)
    found = list(rows[: PAGE + 1])
    return AuditPage(found[:PAGE], found[PAGE - 1].pk if len(found) > PAGE else None)


def audit_rows(project_id: int) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(project_id=project_id)


def people_in_audit(project_id: int) -> list[str]:
    return list(
        AuditEntry.objects.filter(project_id=project_id)
        .order_by("username")
        .values_list("username", flat=True)
        .distinct()
    )


def audit_lines(
    project_id: int, *, who: str = "", about: str = "", refused: bool = False
) -> Iterator[dict[str, Any]]:
    """For a file: one entry at a time, newest first."""
    for entry in _matching(project_id, who=who, about=about, refused=refused).iterator(500):
        yield {
            "id": entry.pk,
            "at": entry.at.isoformat(),
            "user": entry.username,
            "token": entry.token_prefix,
            "action": entry.action,
            "method": entry.method,
            "path": entry.path,
            "status": entry.status,
            "changes": entry.changes,
            "request_id": entry.request_id,
        }


def _matching(project_id: int, *, who: str, about: str, refused: bool) -> QuerySet[AuditEntry]:
    rows = AuditEntry.objects.filter(project_id=project_id).order_by("-pk")
    if who:
        rows = rows.filter(username=who)
    if about:
        rows = rows.filter(path__icontains=about) | rows.filter(action__icontains=about)
    return rows.filter(status=403) if refused else rows
