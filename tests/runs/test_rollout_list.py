"""Pages by keys and counts of what a filter finds, on random sets of rollouts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from orchestrator.runs.filtering.paging import BadCursor
from orchestrator.runs.models import Rollout
from orchestrator.runs.rollout_list import (
    SORTS,
    amount_of,
    list_rollouts,
    rollouts_matching,
)
from tests.base import make_project
from tests.web.build import make_rollout, make_run, tasks_of

DAY = datetime(2026, 11, 30, tzinfo=UTC)
EDGES = [0.0, 0.1, 0.3, 0.5999999999999999, 0.6, 0.7, 0.7999999999999999, 0.9, 1.0]
kinds = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["scored", "scored", "errored", "pending", "cancelled"]),
        "score": st.sampled_from(EDGES) | st.floats(0, 1),
        "latency_s": st.none() | st.sampled_from([0.5, 1.5, 9.0]),
        "cost_usd": st.sampled_from([0.0, 0.25]),
        "tokens_in": st.integers(0, 3),
        "n_steps": st.integers(0, 2),
        "started": st.none() | st.integers(0, 2),
        "task": st.integers(0, 2),
    }
)
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class RandomLists(TestCase):
    def made(self, rows: list[dict[str, Any]]) -> int:
        project = make_project()
        run = make_run(project)
        tasks = tasks_of(run)
        for number, given_row in enumerate(rows):
            row = dict(given_row)
            started, task = row.pop("started"), tasks[row.pop("task")]
            at = None if started is None else DAY + timedelta(days=started)
            extra = {"message": "lost"} if row["state"] == "errored" else {}
            make_rollout(run, task, replicate=number, started_at=at, **row, **extra)
        return project.pk

    @quick
    @given(
        st.lists(kinds, max_size=12),
        st.sampled_from([f"{sign}{name}" for name in SORTS for sign in ("", "-")]),
        st.integers(1, 5),
    )
    def test_pages_hold_every_row_once_in_order_both_ways(
        self, rows: list[dict[str, Any]], sort: str, limit: int
    ) -> None:
        query = rollouts_matching(self.made(rows), "")
        whole = list_rollouts(query, sort=sort, limit=100).rows
        pages = [list_rollouts(query, sort=sort, limit=limit)]
        assert pages[0].before == ""
        while pages[-1].after:
            pages.append(list_rollouts(query, sort=sort, limit=limit, after=pages[-1].after))
        assert [row.pk for page in pages for row in page.rows] == [row.pk for row in whole]
        back = pages[-1]
        for earlier in reversed(pages[:-1]):
            back = list_rollouts(query, sort=sort, limit=limit, before=back.before)
            assert [row.pk for row in back.rows] == [row.pk for row in earlier.rows]
        assert back.before == ""
        key = sort.removeprefix("-")
        values = [row.sorted_by for row in whole]  # type: ignore[attr-defined] # annotated
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=sort.startswith("-"))
        assert values == known + [None] * (len(values) - len(known)), f"{key}: last without value"

    @quick
    @given(st.lists(kinds, max_size=12))
    def test_counts_are_those_of_the_rows(self, rows: list[dict[str, Any]]) -> None:
        project_id = self.made(rows)
        amount = amount_of(rollouts_matching(project_id, ""))
        stored = list(Rollout.objects.filter(run__project_id=project_id))
        assert amount.by_state == Counter(row.state for row in stored)
        scores = [row.score for row in stored if row.score is not None]
        assert amount.n == len(rows)
        assert amount.passed == sum(score >= 0.5 for score in scores)
        assert amount.mean == (pytest.approx(sum(scores) / len(scores)) if scores else None)
        for i, each in enumerate(amount.bins):
            low = "" if i == 0 else f"score >= {each.low}"
            high = "score is not empty" if i == 9 else f"score < {each.high}"
            assert rollouts_matching(project_id, f"{low} {high}").count() == each.n


@pytest.mark.django_db
@pytest.mark.parametrize(
    "cursor",
    ["x", "bnVsbA", "W10", "WyJzY29yZSIsMSwxXQ", "WyJpZCIsWzFdLDFd", "WyJpZCIsMSwidCJd", "é"],
)
def test_a_cursor_of_something_else_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        list_rollouts(rollouts_matching(make_project().pk, ""), after=cursor)
