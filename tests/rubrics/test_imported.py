"""Trees of scores that an environment reports: reading, evaluating, giving back."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.codec import content_hash, from_json, to_json
from rubrics.errors import CriterionFailed, RubricInvalid
from rubrics.grade import grade, score
from rubrics.imports import openenv
from rubrics.imports.scoring import score_tree
from rubrics.imports.tree import FORMAT, components_of, read_file, read_node, write_file
from rubrics.types import Scope, State, Step, Transcript
from tests.rubrics.build import criterion, rubric, transcript

LEAVES = st.builds(
    lambda name: {"kind": "leaf", "component": name, "class": "game:Wins"},
    st.sampled_from(["tests", "style", "speed", "a.b", "ä"]),
)


def combined(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(children, min_size=1, max_size=4)
    return st.one_of(
        lists.map(lambda found: {"kind": "sequential", "children": found}),
        st.tuples(children, st.floats(0, 1)).map(
            lambda pair: {
                "kind": "gate", "params": {"threshold": pair[1]}, "children": [pair[0]],
            }
        ),
        st.tuples(lists, st.lists(st.integers(1, 9), min_size=4, max_size=4)).map(weighted),
    )  # fmt: skip


def weighted(pair: tuple[list[Any], list[int]]) -> dict[str, Any]:
    children, drawn = pair
    whole = sum(drawn[: len(children)])
    return {
        "kind": "weighted_sum",
        "weights": [part / whole for part in drawn[: len(children)]],
        "children": children,
    }


TREES = st.recursive(LEAVES, combined, max_leaves=12)
VALUES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, None, math.nan, math.inf, -1.0]))


def leaf(name: str) -> dict[str, Any]:
    return {"kind": "leaf", "component": name}


def value(tree: dict[str, Any], **components: Any) -> float:
    return score_tree(read_node(tree), components).value


@given(TREES)
def test_what_is_imported_is_exported_again(tree: dict[str, Any]) -> None:
    data = {"format": FORMAT, "tree": tree}
    spec = openenv.to_spec(data).spec
    stored = from_json(to_json(spec))
    assert content_hash(stored) == content_hash(spec)
    assert openenv.from_spec(stored) == (data, ())


@given(TREES, st.dictionaries(st.sampled_from(["tests", "style", "speed", "a.b", "ä"]), VALUES))
def test_a_value_is_as_a_slow_reading_of_the_rules_says(
    tree: dict[str, Any], components: dict[str, Any]
) -> None:
    expected = slowly(tree, components)
    if expected is None:
        with pytest.raises(CriterionFailed):
            score_tree(read_node(tree), components)
    else:
        assert score_tree(read_node(tree), components).value == pytest.approx(expected, abs=1e-9)


def slowly(tree: dict[str, Any], components: dict[str, Any]) -> float | None:
    """None for undecided."""
    if tree["kind"] == "leaf":
        found = components.get(tree["component"])
        usable = found is not None and math.isfinite(found) and 0 <= found <= 1
        return found if usable else None
    if tree["kind"] == "sequential":
        last: float | None = None
        for child in tree["children"]:
            last = slowly(child, components)
            if not last:
                return last
        return last
    values = [slowly(child, components) for child in tree["children"]]
    if any(found is None for found in values):
        return None
    known = [found for found in values if found is not None]
    if tree["kind"] == "gate":
        return known[0] if known[0] >= tree["params"]["threshold"] else 0.0
    return math.fsum(w * v for w, v in zip(tree["weights"], known, strict=True))


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf, -0.1, 1.1, True, "1"])
def test_a_score_that_is_none_is_an_error_with_its_path(bad: Any) -> None:
    tree = {"kind": "sequential", "children": [leaf("compiles"), leaf("tests")]}
    imported = criterion("imported", params={"tree": tree}, scope=Scope.TRAJECTORY)
    given_scores = transcript(components={"compiles": bad, "tests": 1.0})
    (verdict,) = grade(rubric(imported), given_scores)
    assert verdict.state is State.ERRORED and verdict.value is None
    assert verdict.reason.startswith("sequential[0].compiles: the score 'compiles'")


def test_a_score_that_is_missing_names_what_there_is() -> None:
    tree = {"kind": "gate", "params": {"threshold": 0.5}, "children": [leaf("tests")]}
    with pytest.raises(CriterionFailed, match=r"gate\[0\]\.tests: .*it reported other"):
        value(tree, other=1.0)


def test_a_sequence_asks_for_nothing_behind_its_end() -> None:
    tree = {"kind": "sequential", "children": [leaf("compiles"), leaf("tests")]}
    assert value(tree, compiles=0.0) == 0.0
    assert value(tree, compiles=0.2, tests=0.7) == 0.7


def test_a_sum_outside_the_range_is_an_error_and_not_clamped() -> None:
    tree = {"kind": "weighted_sum", "weights": [1.5, -0.5], "children": [leaf("a"), leaf("b")]}
    assert value(tree, a=0.5, b=0.5) == 0.5
    with pytest.raises(CriterionFailed, match=r"1\.5 is outside 0 to 1"):
        value(tree, a=1.0, b=0.0)


def test_weights_that_add_up_nearly_stay_in_range() -> None:
    tree = {"kind": "weighted_sum", "weights": [0.5000004, 0.5], "children": [leaf("a"), leaf("b")]}
    assert value(tree, a=1.0, b=1.0) == 1.0


def test_a_trajectory_that_was_cut_off_has_no_score() -> None:
    tree = {"kind": "discounted", "component": "won", "params": {"gamma": 0.9}}
    imported = rubric(criterion("imported", params={"tree": tree}, scope=Scope.TRAJECTORY))
    done = transcript(components={"won": 0.0})
    assert score(imported, done)[0].value == 0.0
    cut = Transcript(steps=(Step(0, 1, "go"),), components={"won": 0.0})
    total, (verdict,) = score(imported, cut)
    assert total.state is State.ERRORED and "before it was done" in verdict.reason


def test_a_verdict_shows_each_part() -> None:
    tree = weighted(([leaf("tests"), leaf("style")], [3, 1, 1, 1]))
    imported = criterion("imported", params={"tree": tree}, scope=Scope.TRAJECTORY)
    (verdict,) = grade(rubric(imported), transcript(components={"tests": 1.0, "style": 0.0}))
    assert verdict.value == 0.75 and verdict.cites == (11,)
    assert verdict.reason == "tests 1, style 0, weighted_sum 0.75"
    assert verdict.detail["nodes"][0] == {
        "path": "weighted_sum[0].tests", "kind": "leaf", "value": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"kind": "sum"}, "tree.kind: 'sum'; accepts leaf"),
        ({"kind": "leaf"}, "tree.component: required"),
        ({"kind": "sequential"}, "tree.children: at least one"),
        ({"kind": "leaf", "component": "a", "wieght": 1}, "tree.wieght: unknown"),
        ({"kind": "weighted_sum", "weights": [1], "children": []}, "tree.children: at least one"),
        (
            {"kind": "weighted_sum", "weights": [0.5], "children": [leaf("a"), leaf("b")]},
            "tree.weights: 1 for 2",
        ),
        (
            {"kind": "weighted_sum", "weights": [0.5, 0.6], "children": [leaf("a"), leaf("b")]},
            "tree.weights: they add up to 1.1",
        ),
        (
            {"kind": "weighted_sum", "weights": [math.nan, 1], "children": [leaf("a"), leaf("b")]},
            "tree.weights: accepts a list of finite numbers",
        ),
        ({"kind": "gate", "children": [leaf("a"), leaf("b")]}, "tree.children: a gate has one"),
        (
            {"kind": "gate", "params": {"threshold": math.inf}, "children": [leaf("a")]},
            "tree.params: accepts",
        ),
        ({"kind": "discounted", "component": "a", "params": {"gamma": 2}}, "tree.params.gamma"),
        ({"kind": "gate", "children": [{"kind": "rubric_list"}]}, "tree.children[0]: a rubric_"),
        ({"kind": "rubric_list"}, "tree: a rubric_list has no score"),
        ({"kind": "leaf", "component": "a", "children": [7]}, "tree.children[0]: accepts"),
    ],
)  # fmt: skip
def test_a_tree_that_cannot_be_used_is_refused_with_its_place(
    tree: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RubricInvalid) as refused:
        read_node(tree)
    assert refused.value.problems[0].startswith(problem)
    imported = {"id": "a", "kind": "imported", "scope": "trajectory", "params": {"tree": tree}}
    with pytest.raises(RubricInvalid, match="tree"):
        from_json({"criteria": [imported]})


def test_a_tree_that_is_too_deep_is_refused() -> None:
    tree = leaf("a")
    for _ in range(60):
        tree = {"kind": "gate", "children": [tree]}
    with pytest.raises(RubricInvalid, match="deeper than 50 levels"):
        read_node(tree)


@pytest.mark.parametrize("kind", ["rubric_list", "rubric_dict"])
def test_a_container_becomes_criteria_and_is_given_back(kind: str) -> None:
    children = [leaf("games.pong"), {**leaf("games.chess"), "class": "chess:Wins"}]
    if kind == "rubric_dict":
        children = [{**child, "key": f"game {i}"} for i, child in enumerate(children)]
    data = {"format": FORMAT, "tree": {"kind": kind, "children": children}}
    spec = openenv.to_spec(data).spec
    assert len(spec.criteria) == 2 and len({c.id for c in spec.criteria}) == 2
    assert openenv.from_spec(spec) == (data, ())


def test_what_a_tree_cannot_say_is_listed() -> None:
    tree = criterion("imported", id="a", params={"tree": leaf("x")}, required=True)
    data, losses = openenv.from_spec(rubric(tree, criterion(id="b"), pass_threshold=0.5))
    assert data is not None and read_file(data).component == "x"
    assert [loss.at for loss in losses] == ["pass_threshold", "a.required", "b"]
    assert openenv.from_spec(rubric(criterion()))[0] is None


def test_a_judge_of_the_library_comes_with_a_note() -> None:
    tree = {"kind": "llm_judge", "component": "fluent", "params": {"default_score": 0.0}}
    imported = openenv.to_spec({"format": FORMAT, "tree": tree})
    assert "first number" in imported.notes[0] and not imported.losses


def test_components_are_those_that_decide() -> None:
    custom = {**leaf("own"), "children": [leaf("own.part")]}
    node = read_node({"kind": "sequential", "children": [custom, leaf("x"), leaf("x")]})
    assert components_of(node) == ("own", "x")
    assert write_file(node)["tree"]["children"][0]["children"] == [leaf("own.part")]
