"""Views hold no queries: what reads stands in `queries` of the apps, where pages, the API and the
terminal share it, and where the project that may see a row is part of the query.

Read off the source, so that a new view is held to it before anybody sends it a request.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "orchestrator"
VIEWS = sorted([*(ROOT / "api").rglob("*.py"), *(ROOT / "web" / "views").rglob("*.py")])

OWN_TABLES = {
    "api/idempotency.py": "answers that are kept under a key: a table of the API itself",
}
"""Modules that may, each with its reason."""

MANAGERS = {"objects", "everything", "_default_manager", "_base_manager"}
COMPOSING = {
    *("aggregate", "annotate", "exclude", "in_bulk", "prefetch_related", "raw", "values_list"),
    "cursor",
}
"""What makes another query of one. To filter by what a request names, to lock and to take a page is
left to views.
"""
SHORTCUTS = {"get_object_or_404", "get_list_or_404", "aget_object_or_404"}


def queries_in(source: str) -> Iterator[str]:
    """`line: what` of each query that a module makes itself."""
    tree = ast.parse(source)
    empty = {
        id(call.func.value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "none"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in MANAGERS and id(node) not in empty:
            yield f"{node.lineno}: .{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in COMPOSING:
                yield f"{node.lineno}: .{node.func.attr}()"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            first = node.args[0]
            is_model = isinstance(first, ast.Name) and first.id[:1].isupper()
            if node.func.id in SHORTCUTS and is_model:
                yield f"{node.lineno}: {node.func.id}({ast.unparse(first)})"


def test_views_make_no_queries_of_their_own() -> None:
    found = {
        str(path.relative_to(ROOT)): list(own)
        for path in VIEWS
        if (own := sorted(queries_in(path.read_text())))
    }
    assert len(VIEWS) > 100
    assert set(found) == set(OWN_TABLES), (
        f"put what is read into `queries` of the app: {found}; allowed is {OWN_TABLES}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "rows = Run.objects.filter(project=project)",
        "one = found(\n    Rollout.everything.all(), pk=1)",
        "get_object_or_404(Climb, pk=1)",
        "rows = climbs_in(1).annotate(n=Count('rungs'))",
        "keys = tasks_of(draft).values_list('key', flat=True)",
        "with connection.cursor() as cursor: pass",
    ],
)
def test_each_way_to_read_is_seen(source: str) -> None:
    assert len(list(queries_in(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "form.version = ModelChoiceField(EnvironmentVersion.objects.none())",
        "found(climbs_in(project.pk).filter(state='open'), pk=1)",
        "rows = models_in(1).select_for_update(of=('self',))",
        "get_object_or_404(checkpoints_in(project_id), pk=1)",
        "from django.db import transaction",
    ],
)
def test_what_is_left_to_views(source: str) -> None:
    assert not list(queries_in(source))
