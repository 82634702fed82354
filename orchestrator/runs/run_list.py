"""The list of a project's runs: filtered, sorted, paged. Sums of rollouts are read for one page."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import F, QuerySet

from orchestrator.runs.filtering.compiling import condition
from orchestrator.runs.filtering.fields import RUNS
from orchestrator.runs.filtering.grammar import parse
from orchestrator.runs.filtering.paging import Key, Page, page_of
from orchestrator.runs.models import Run
from orchestrator.runs.queries import with_sums

SORTS: Mapping[str, Key] = {
    "id": Key("id"),
    "started": Key("started_at", is_nullable=True, is_time=True),
    "score": Key(F("mean_score"), is_nullable=True),
    "cost": Key(F("sum_cost"), is_nullable=True),
}
DEFAULT_SORT = "-id"


def runs_matching(project_id: int, text: str) -> QuerySet[Run]:
    """FilterError when the filter cannot be read."""
    where = condition(parse(text), RUNS, project_id=project_id)
    return with_sums(Run.objects.filter(project_id=project_id)).filter(where)


def list_runs_page(
    query: QuerySet[Run],
    *,
    sort: str = DEFAULT_SORT,
    after: str = "",
    before: str = "",
    limit: int = 50,
) -> Page[Run]:
    """One query."""
    query = query.select_related(
        "environment_version__environment", "rubric_version__rubric", "model"
    )
    return page_of(query, SORTS, sort, after=after, before=before, limit=limit)
