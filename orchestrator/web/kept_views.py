"""Saved views as a list's menu shows them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.projects.models import User
from orchestrator.runs.models import ListKind, SavedView
from orchestrator.runs.saved_views import views_of
from orchestrator.web.listing import ListState


@dataclass(frozen=True)
class KeptView:
    pk: int
    name: str
    link: str
    is_shared: bool
    owner_id: int
    owner: User


def kept_views(project_id: int, user: User, of: ListKind) -> list[KeptView]:
    """One query."""
    return [
        KeptView(view.pk, view.name, link_of(view), view.is_shared, view.owner_id, view.owner)
        for view in views_of(project_id, user, of)
    ]


def link_of(view: SavedView) -> str:
    columns = view.columns if isinstance(view.columns, list) else []
    return ListState(view.query, view.sort, tuple(map(str, columns))).link()
