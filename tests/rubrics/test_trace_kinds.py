"""Kinds that read the trajectory or the final state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.codec import from_json
from rubrics.errors import RubricInvalid
from rubrics.grade import grade
from rubrics.kinds.json_equal import holds, is_equal
from rubrics.kinds.tool_order import longest_common
from rubrics.types import State, Step, Transcript, Verdict

CALLS = (
    Step(1, 11, "a", tool="search", arguments={"q": "x", "n": 3}),
    Step(2, 12, "b", tool="open", arguments={"id": 7}, tool_error="not found"),
    Step(3, 13, "c", tool="open", arguments={"id": 8}),
    Step(4, 14, "d", command="rm -rf build", exit_status=0),
    Step(5, 15, "e", answer='{"total": 12.0, "items": [{"id": 1}, {"id": 2}]}'),
)
STATE = {
    "files": {
        "out/report.txt": {"size": 12, "sha256": "", "text": "total: 12\n"},
        "big.bin": {"size": 10**9, "sha256": "", "text": None},
    },
    "tables": {
        "people": {"columns": ["id", "name"], "rows": [[1, "Ada"], [2, None], [3, "Bo"]]},
    },
}
TRACE = Transcript(
    steps=CALLS, answer=CALLS[-1].answer, wall_s=4.0, tokens=100, cost_usd=0.03, state=STATE
)


def verdict(kind: str, scope: str = "trajectory", **params: Any) -> Verdict:
    negative = kind.startswith("forbidden")
    criteria = [{"id": "c", "kind": kind, "params": params, "scope": scope, "negative": negative}]
    if negative:
        criteria.append({"id": "d", "kind": "environment_reward"})
    return grade(from_json({"criteria": criteria}), TRACE)[0]


@pytest.mark.parametrize(
    ("params", "value", "cites"),
    [
        ({"tool": "search"}, 1.0, (11,)),
        ({"tool": "search", "arguments": {"q": "x"}}, 1.0, (11,)),
        ({"tool": "search", "arguments": {"q": "y"}}, 0.0, ()),
        ({"tool": "open", "min": 2}, 1.0, (12, 13)),
        ({"tool": "open", "min": 2, "succeeded": True}, 0.0, (13,)),
        ({"tool": "open", "max": 1}, 0.0, (12, 13)),
        ({"tool": "close", "min": 0, "max": 0}, 1.0, ()),
        ({"command": r"rm\b"}, 1.0, (14,)),
    ],
)
def test_tool_called(params: dict[str, Any], value: float, cites: tuple[int, ...]) -> None:
    found = verdict("tool_called", **params)
    assert (found.value, found.cites) == (value, cites)


def test_tool_order() -> None:
    assert verdict("tool_order", tools=["search", "open"]).value == 1.0
    assert verdict("tool_order", tools=["open", "search"]).value == 0.5
    assert verdict("tool_order", tools=["search", "open"], exact=True).value == 0.0
    assert verdict("tool_order", tools=["search", "open", "open"], exact=True).value == 1.0


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_the_longest_common_subsequence_is_one(a: list[str], b: list[str]) -> None:
    n = longest_common(a, b)
    assert n == longest_common(b, a)
    assert longest_common(a, a) == len(a)
    assert n <= min(len(a), len(b))
    assert n >= sum(min(a.count(x), b.count(x)) > 0 for x in "abc") / 3


def test_a_forbidden_tool_is_a_penalty() -> None:
    assert verdict("forbidden_tool", tools=["open"]).value == 1.0
    assert verdict("forbidden_tool", tools=["open"], arguments={"id": 9}).value == 0.0


def test_what_a_rollout_took() -> None:
    assert verdict("cost", max=0.05).value == 1.0
    assert verdict("cost", max=0.04, within=0.02).value == pytest.approx(0.5)
    assert verdict("latency", max=4.0, within=1.0).value == 0.0
    assert verdict("tokens", max=200, within=100).value == 1.0
    spec = from_json({"criteria": [{"id": "c", "kind": "cost", "params": {"max": 1},
                                    "scope": "trajectory"}]})  # fmt: skip
    assert grade(spec, Transcript())[0].state is State.ERRORED


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({"path": "$.total", "equals": 12}, 1.0),
        ({"path": "$.total", "equals": True}, 0.0),
        ({"path": "$.items[*].id", "equals": 2}, 0.0),
        ({"path": "$.items[*].id", "equals": 2, "match": "any"}, 1.0),
        ({"path": "$.items[?@.id > 1]"}, 1.0),
        ({"path": "$.none"}, 0.0),
        ({"path": "$.items", "equals": [{"id": 1}, {"id": 2.0}]}, 1.0),
    ],
)
def test_json_path(params: dict[str, Any], value: float) -> None:
    assert verdict("json_path", "final_answer", **params).value == value


def test_similarity() -> None:
    answer = str(CALLS[-1].answer)
    assert verdict("similarity", "final_answer", expected=answer).value == 1.0
    assert verdict("similarity", "final_answer", expected="zzz", method="words").value < 0.2  # type: ignore[operator]
    assert verdict("similarity", "final_answer", expected="total", method="part").value == 1.0


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({"path": "out/*.txt"}, 1.0),
        ({"path": "out/report.txt", "equals": "total: 12"}, 1.0),
        ({"path": "out/report.txt", "contains": ["total", "13"]}, 0.0),
        ({"path": "out/report.txt", "matches": r"total: \d+"}, 1.0),
        ({"path": "secret.txt", "absent": True}, 1.0),
        ({"path": "out/*", "absent": True}, 0.0),
        ({"path": "nothing"}, 0.0),
    ],
)
def test_state_file(params: dict[str, Any], value: float) -> None:
    assert verdict("state_file", "environment_state", **params).value == value


def test_a_file_that_was_not_reported_is_no_zero() -> None:
    found = verdict("state_file", "environment_state", path="big.bin", equals="x")
    assert found.state is State.ERRORED
    assert "too large" in found.reason


def test_state_query() -> None:
    def rows(query: str, wanted: list[list[Any]], **params: Any) -> Verdict:
        return verdict("state_query", "environment_state", query=query, rows=wanted, **params)

    assert rows("SELECT count(*) FROM people", [[3]]).value == 1.0
    assert rows("SELECT name FROM people", [["Bo"], ["Ada"], [None]]).value == 1.0
    assert (
        rows("SELECT id FROM people ORDER BY id DESC", [[1], [2], [3]], ordered=True).value == 0.0
    )
    for bad in (
        "DROP TABLE people",
        "ATTACH 'x.db' AS x",
        "SELECT * FROM nothing",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c",
        "SELECT a.id FROM people a, people b, people c, people d, people e, people f, people g",
    ):
        found = rows(bad, [[1]])
        assert found.state is State.ERRORED, bad
        assert found.value is None


def test_states_that_are_not_reported_are_errored() -> None:
    for kind, params in (
        ("state_file", {"path": "x"}),
        ("state_query", {"query": "SELECT 1", "rows": [[1]]}),
    ):
        spec = from_json({"criteria": [{"id": "c", "kind": kind, "params": params,
                                        "scope": "environment_state"}]})  # fmt: skip
        assert grade(spec, Transcript())[0].state is State.ERRORED


@pytest.mark.parametrize(
    ("kind", "params", "problem"),
    [
        ("tool_called", {}, "exactly one of tool and command"),
        ("tool_called", {"tool": "a", "command": "b"}, "exactly one"),
        ("tool_called", {"tool": "a", "min": 3, "max": 1}, "params.max"),
        ("cost", {"max": 0}, "above 0"),
        ("cost", {"max": 1, "within": 2}, "params.within"),
        ("state_file", {"path": "a", "absent": True, "equals": "b"}, "params.absent"),
        ("state_query", {"query": "SELECT 1", "rows": [1]}, "params.rows"),
        ("json_path", {"path": "$.["}, "not a JSONPath"),
        ("similarity", {"method": "magic"}, "one of characters"),
    ],
)
def test_bad_parameters_are_named(kind: str, params: dict[str, Any], problem: str) -> None:
    scopes = {"state_file": "environment_state", "state_query": "environment_state",
              "json_path": "final_answer", "similarity": "final_answer"}  # fmt: skip
    with pytest.raises(RubricInvalid, match=problem):
        from_json(
            {
                "criteria": [
                    {
                        "id": "c",
                        "kind": kind,
                        "params": params,
                        "scope": scopes.get(kind, "trajectory"),
                    }
                ]
            }
        )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


@given(JSON, JSON)
def test_equality_of_json(a: Any, b: Any) -> None:
    assert is_equal(a, a)
    assert is_equal(a, b) == is_equal(b, a)
    assert holds(a, a)
    if is_equal(a, b):
        assert holds(a, b)
