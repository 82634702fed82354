"""Judge files of Harbor's Reward Kit: in, out, and what is listed as lost."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.aggregate import aggregate
from rubrics.codec import from_json, to_json
from rubrics.errors import RubricInvalid
from rubrics.imports import harbor, harbor_export
from rubrics.imports.harbor_form import free_id, slug
from rubrics.imports.toml import written
from rubrics.types import Aggregation, State, Verdict
from tests.rubrics.build import criterion, rubric

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
SCALES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.integers(2, 10).map(lambda n: {"type": "likert", "points": n}),
    st.tuples(st.floats(-9, 9), st.floats(0.5, 99)).map(
        lambda pair: {"type": "numeric", "min": pair[0], "max": pair[0] + pair[1]}
    ),
    st.lists(TEXTS.filter(str.strip), min_size=2, max_size=10).map(
        lambda levels: {"type": "rubric", "levels": levels}
    ),
)
CRITERIA = st.builds(
    lambda description, name, scale, weight: {
        "description": description,
        **({"name": name} if name else {}),
        **scale,
        **({"weight": float(weight)} if weight > 1 else {}),
    },
    TEXTS,
    st.one_of(st.just(""), st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)),
    SCALES,
    st.integers(1, 10),
)
SCORINGS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.just({"aggregation": "all-pass"}),
    st.floats(0.01, 1).map(lambda at: {"aggregation": "threshold", "threshold": at}),
)


def distinct(criteria: list[dict[str, Any]]) -> bool:
    """Reward Kit itself wants names that differ."""
    names = [item.get("name") or slug(item["description"]) for item in criteria]
    ids = [free_id(name, set()) for name in names]
    return len(set(names)) == len(names) and len(set(ids)) == len(ids)


FILES = st.builds(
    lambda model, criteria, scoring: {
        **({"judge": {"judge": model}} if model else {}),
        "criterion": criteria,
        **({"scoring": scoring} if scoring else {}),
    },
    st.sampled_from(["", "anthropic/claude", "openai/gpt"]),
    st.lists(CRITERIA, min_size=1, max_size=4).filter(distinct),
    SCORINGS,
)


def back(files: dict[str, str]) -> dict[str, Any]:
    imported = harbor.to_spec(files)
    assert imported.losses == ()
    stored = from_json(to_json(imported.spec))
    texts, losses = harbor_export.from_spec(stored)
    assert losses == ()
    return {name: tomllib.loads(text) for name, text in texts.items()}


@given(FILES)
def test_a_file_comes_back_as_it_was(table: dict[str, Any]) -> None:
    text = written(table)
    assert tomllib.loads(text) == table
    (found,) = back({"judge.toml": text}).values()
    assert found == table


@given(st.lists(FILES, min_size=2, max_size=3), st.sampled_from(["weighted-mean", "all-pass"]))
def test_a_folder_comes_back_as_it_was(tables: list[dict[str, Any]], outer: str) -> None:
    tables = [
        {**table, "judge": {**table.get("judge", {}), "weight": float(i + 2)}}
        for i, table in enumerate(tables)
    ]
    for table in tables:
        aggregation = table.get("scoring", {}).get("aggregation")
        at_one = table.get("scoring", {}).get("threshold") == 1.0
        if aggregation == "threshold" and (outer == "weighted-mean" or at_one):
            del table["scoring"]
    files = {f"part{i}.toml": table for i, table in enumerate(tables)}
    files["reward.toml"] = {"reward": [{"name": "reward", "aggregation": outer}]}
    assert back({name: written(table) for name, table in files.items()}) == files


@given(FILES)
def test_whatever_else_is_set_is_listed(table: dict[str, Any]) -> None:
    judge = {**table.get("judge", {}), "timeout": 60, "files": ["/app/main.py"]}
    first, *others = table["criterion"]
    more = {**table, "judge": judge, "criterion": [{**first, "optional": True}, *others]}
    imported = harbor.to_spec({"j.toml": written(more)})
    assert {loss.at for loss in imported.losses} == {
        "j.judge.timeout", "j.judge.files", "j.criterion[0].optional",
    }  # fmt: skip
    (text,) = harbor_export.from_spec(imported.spec)[0].values()
    assert tomllib.loads(text) == table


def text_of(**table: Any) -> dict[str, str]:
    return {"quality.toml": written(table)}


def lost(files: dict[str, str]) -> list[str]:
    return [str(loss) for loss in harbor.to_spec(files).losses]


def test_the_example_of_its_documentation_is_read() -> None:
    text = """
    [judge]
    judge = "anthropic/claude-sonnet-4-6"
    files = ["/app/main.py", "/app/utils.py"]
    [[criterion]]
    description = "Is the code correct?"
    type = "binary"
    [[criterion]]
    description = "How readable is the code?"
    type = "likert"
    points = 5
    weight = 2.0
    [[criterion]]
    description = "Rate the test coverage on a scale from 0 to 100"
    type = "numeric"
    min = 0
    max = 100
    """
    imported = harbor.to_spec({"quality.toml": text})
    correct, readable, coverage = imported.spec.criteria
    assert correct.id == "is_the_code_correct" and correct.params["model"].startswith("anthropic")
    assert (readable.weight, readable.params["max"]) == (2, 5)
    assert coverage.params["max"] == 100
    assert [loss.at for loss in imported.losses] == ["quality.judge.files"]


def test_a_threshold_counts_as_it_does_there() -> None:
    files = text_of(
        criterion=[{"description": "A", "weight": 3.0}, {"description": "B"}],
        scoring={"aggregation": "threshold", "threshold": 0.7},
    )
    spec = harbor.to_spec(files).spec

    def worth(a: float, b: float) -> float | None:
        return aggregate(
            spec, [Verdict("a", State.SCORED, a), Verdict("b", State.SCORED, b)]
        ).value  # fmt: skip

    assert (worth(1, 0), worth(0, 1), worth(1, 1)) == (1.0, 0.0, 1.0)


def test_all_pass_needs_full_marks() -> None:
    likert = {"description": "A", "type": "likert", "points": 5}
    spec = harbor.to_spec(text_of(criterion=[likert], scoring={"aggregation": "all_pass"})).spec
    assert aggregate(spec, [Verdict("a", State.SCORED, 0.75)]).value == 0.0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"judge": {"judge": "claude-code"}}, "quality.judge.judge: claude-code is no model"),
        ({"judge": {"samples": 3}}, "quality.judge.samples: repeats"),
        ({"judge": {"weight": 2.0}}, "quality.judge.weight: there is nothing"),
        ({"judge": {"whatever": 1}}, "quality.judge.whatever: unknown"),
        ({"scoring": {"aggregation": "any_pass"}}, "quality.scoring.aggregation: any-pass is a"),
        ({"scoring": {"aggregation": "required-pass"}}, "quality.scoring.aggregation: required"),
        ({"criterion": [{"description": "A", "negate": True}, {"description": "B"}]},
         "quality.criterion[0].negate: here it is subtracted"),
        ({"criterion": [{"description": "A", "id": "1.1"}]}, "quality.criterion[0].id: is 1_1"),
        ({"criterion": [{"description": "A", "weight": 0.0}, {"description": "B"}]},
         "quality.criterion[0]: left out"),
        ({"criterion": [{"description": "A", "weight": 0.01}, {"description": "B"}]},
         "quality.criterion.weight: 0.01, 1 are no proportions"),
        ({"extra": 1}, "quality.extra: unknown"),
    ],
)  # fmt: skip
def test_what_is_not_the_same_here_is_listed(table: dict[str, Any], said: str) -> None:
    found = lost(text_of(**{"criterion": [{"description": "A"}], **table}))
    assert len(found) == 1 and found[0].startswith(said)


def test_weights_in_proportion_need_no_loss() -> None:
    files = text_of(
        criterion=[{"description": "A", "weight": 0.1}, {"description": "B", "weight": 0.25}]
    )
    imported = harbor.to_spec(files)
    assert [c.weight for c in imported.spec.criteria] == [2, 5] and not imported.losses


def test_a_folder_lists_what_joins_other_things() -> None:
    reward = {
        "reward": [
            {"name": "main"},
            {"name": "reward", "weights": {"quality": 3.0, "checks": 2.0}},
        ],
        "scoring": {"checks": {"aggregation": "all-pass"}},
    }
    files = {
        **text_of(criterion=[{"description": "A"}]),
        "other.toml": written({"criterion": [{"description": "B"}]}),
        "reward.toml": written(reward),
    }
    imported = harbor.to_spec(files)
    assert [(g.id, g.weight) for g in imported.spec.groups] == [("other", 1), ("quality", 3)]
    assert [loss.at for loss in imported.losses] == [
        "reward.scoring.checks", "reward.reward[0]", "reward.weights.checks",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[judge", "j.toml: "),
        ("", "j.criterion: accepts a list of at least one"),
        ("[[criterion]]\ntype = 'binary'", "j.criterion[0].description: required"),
        ("[[criterion]]\ndescription = 'A'\ntype = 'stars'", "j.criterion[0].type: 'stars'"),
        ("[[criterion]]\ndescription = 'A'\nweight = nan", "j.criterion[0].weight: nan"),
        ("[[criterion]]\ndescription = 'A'\nweight = true", "j.criterion[0].weight: True"),
        ("criterion = 3", "j.criterion: 3"),
    ],
)
def test_what_is_no_judge_file_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(RubricInvalid) as refused:
        harbor.to_spec({"j.toml": text})
    assert refused.value.problems[0].startswith(problem)


def test_what_judge_files_cannot_say_is_listed() -> None:
    asked = {"question": "Is it right?", "sees": ["answer"], "anchors": {"1": "yes"}}
    judge = criterion("judge", id="right", params=asked, required=True, threshold=0.7)
    code = criterion("exact", id="same")
    files, losses = harbor_export.from_spec(
        rubric(judge, code, aggregation=Aggregation.SEQUENTIAL, pass_threshold=0.5)
    )
    assert list(files) == ["judge.toml"]
    assert [loss.at for loss in losses] == [
        "pass_threshold", "same", "judge.aggregation", "right.required", "right.threshold",
        "right.sees", "right.anchors",
    ]  # fmt: skip
    assert harbor_export.from_spec(rubric(code))[0] == {}
