"""Saved views of lists: kept, shared, found again, forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q, QuerySet

from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs.models import ListKind, SavedView

MOST_VIEWS = 100
"""Of one person in one project and list."""


class ViewRefused(ValueError):
    """A view that cannot be kept; says why and what to do."""


def views_of(project_id: int, user: User, of: ListKind) -> list[SavedView]:
    """One's own and the project's, by name. One query."""
    found = _seen_by(user).filter(project_id=project_id, of=of)
    return list(found.select_related("owner").order_by("name", "id"))


def seen_in(project_id: int, user: User) -> QuerySet[SavedView]:
    return _seen_by(user).filter(project_id=project_id).select_related("owner")


def view_for(project_id: int, user: User, view_id: int) -> SavedView | None:
    return _seen_by(user).filter(project_id=project_id, pk=view_id).first()


def _seen_by(user: User) -> QuerySet[SavedView]:
    return SavedView.objects.filter(Q(owner=user) | Q(is_shared=True))


def save_view(
    *,
    actor: User,
    project: Project,
    of: ListKind,
    name: str,
    query: str,
    sort: str,
    columns: Sequence[str],
    is_shared: bool,
) -> SavedView:
    """Keeps it, or replaces one's own of that name. Sharing needs an editor."""
    require(actor, project, Role.EDITOR if is_shared else Role.VIEWER)
    name = " ".join(name.split())
    if not name:
        raise ViewRefused("Give the view a name.")
    if len(name) > 80:
        raise ViewRefused("A name has at most 80 characters.")
    mine = SavedView.objects.filter(project=project, owner=actor, of=of)
    if mine.count() >= MOST_VIEWS and not mine.filter(name=name).exists():
        raise ViewRefused(f"There are {MOST_VIEWS} views of yours already. Remove one first.")
    view, _ = SavedView.objects.update_or_create(
        project=project,
        owner=actor,
        of=of,
        name=name,
        defaults={
            "query": query,
            "sort": sort,
            "columns": list(columns),
            "is_shared": is_shared,
        },
    )
    return view


def remove_view(*, actor: User, view: SavedView) -> None:
    """One's own; a shared one of somebody else needs an admin."""
    if view.owner_id != actor.pk:
        require(actor, view.project_id, Role.ADMIN)
    view.delete()
