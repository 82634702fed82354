"""Descriptions of skills, judged by what they make an agent load."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optimizer.errors import HarnessInvalid
from optimizer.harness import Harness
from optimizer.reflection.triggers import (
    Query,
    Rate,
    best,
    catalogue_only,
    halves,
    queries_of,
    rate,
    told,
    tunable,
)
from tests.optimizer.build import SKILL, harness

PATH = "skills/count-lines/evals/triggers.json"


def with_queries(queries: Any) -> Harness:
    text = queries if isinstance(queries, str) else json.dumps(queries)
    return harness(skills=(SKILL,), files={PATH: text})


def row(query: str, should: bool) -> dict[str, Any]:
    return {"query": query, "should_trigger": should}


TWENTY = [row(f"count {i}", True) for i in range(10)] + [row(f"sort {i}", False) for i in range(10)]


def test_queries_are_split_60_to_40_for_ever_and_by_kind() -> None:
    queries = queries_of(with_queries(TWENTY), "count-lines")
    tuning, held_out = halves("count-lines", queries)
    assert (len(tuning), len(held_out)) == (12, 8)
    assert sum(query.should_load for query in tuning) == 6
    assert halves("count-lines", queries[::-1]) == (tuning, held_out)
    assert halves("another", queries) != (tuning, held_out)
    assert not {query.text for query in tuning} & {query.text for query in held_out}


@pytest.mark.parametrize(
    ("queries", "problem"),
    [
        ("[", "not JSON"),
        ([], "1 to 60"),
        (TWENTY * 4, "1 to 60"),
        ([row("a", True), {"query": ""}], "number 2: query accepts text"),
        ([row("a", True), {"query": "b"}], "should_trigger accepts"),
        ([row("a", True), row("a", False)], "twice"),
        ([row("a", True), row("b", True)], "and queries that should not"),
    ],
)
def test_files_that_say_nothing_certain_are_refused(queries: Any, problem: str) -> None:
    with pytest.raises(HarnessInvalid, match=problem):
        queries_of(with_queries(queries), "count-lines")


def test_skills_with_queries_are_tuned_unless_protected() -> None:
    seed = with_queries({"queries": TWENTY})
    assert [skill.name for skill in tunable(seed)] == ["count-lines"]
    assert tunable(seed, ["skills/count-lines/SKILL.md"]) == []
    assert tunable(harness(skills=(SKILL,))) == []


def test_an_agent_decides_by_the_catalogue_alone() -> None:
    seen = catalogue_only(with_queries(TWENTY), "count-lines", "Counts. Use for numbers.")
    (skill,) = seen.skills
    assert skill.description == "Counts. Use for numbers."
    (system, user) = seen.messages("count 1")
    assert "Counts. Use for numbers." in system["content"]
    assert "You answer questions" not in system["content"]
    assert user == {"role": "user", "content": "count 1"}


def test_rates_count_right_decisions_of_both_kinds() -> None:
    queries = [Query("a", True), Query("b", False)]
    loads = {"a": [True, True, False], "b": [False, False, True]}
    assert rate(queries, loads) == Rate(4, 6)
    assert str(rate(queries[:1], loads)) == "2 of 3"
    assert told(queries, {"a": [True] * 3, "b": [True] * 3})[0]["query"] == "b"


def test_the_present_description_stays_unless_another_is_better() -> None:
    assert best("now", {"now": Rate(9, 12), "new": Rate(9, 12)}) == "now"
    rates = {"now": Rate(8, 12), "longer one": Rate(9, 12), "short": Rate(9, 12)}
    assert best("now", rates) == "short"
