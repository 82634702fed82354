"""Each rule fires where it should and keeps silent where it should not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rubrics.codec import from_json
from rubrics.grade import score
from rubrics.lint import Severity, lint
from rubrics.templates import TEMPLATES, Template
from rubrics.types import RubricSpec, Transcript

ANSWER = {"id": "answer", "kind": "exact", "params": {"expected": "42"}, "weight": 5}


def codes(*criteria: dict[str, Any], **rubric: Any) -> list[str]:
    spec = from_json({"criteria": list(criteria), **rubric})
    return [finding.code for finding in lint(spec)]


def judge(question: str, **params: Any) -> dict[str, Any]:
    given = {"question": question, **params}
    return {"id": "j", "kind": "judge", "scope": "trajectory", "params": given, "weight": 4}


JUDGES = [
    ("prefer-binary", judge("Does it state the total?", scale="scale", anchors={"1": "no"})),
    ("anchors", judge("Does it state the total?", scale="scale")),
    ("one-idea", judge("Does it state the total and does it name the customer?")),
    ("one-idea", judge("Is the total stated? Is the customer named?")),
    ("use-code", judge("Did it use at most 3 commands?")),
    ("use-code", judge("Is the output valid JSON?")),
    ("second-format", judge("Is the tone friendly? Answer with yes or no.")),
    ("second-format", judge("Rate the tone from 1 to 10.")),
    ("obeys-the-agent", judge("Is the file saved, as the agent says?")),
    ("reference-not-shown", judge("Does it agree with the reference answer?")),
    ("reference-not-used", judge("Does it state the total?", sees=["answer", "expected"])),
    ("vague-word", judge("Is the summary well-written?")),
]


@pytest.mark.parametrize(("code", "criterion"), JUDGES)
def test_questions_that_judges_answer_badly(code: str, criterion: dict[str, Any]) -> None:
    assert code in codes(ANSWER, criterion)


@pytest.mark.parametrize(
    "criterion",
    [
        judge("Does the answer state the total?"),
        judge("Does the agent undo what it changed by mistake?"),
        judge("Does the answer name both parties of the contract?"),
        judge("Does it agree with the reference answer?", sees=["answer", "expected"]),
        judge("Is the tone professional?", anchors={"0": "slang", "1": "full sentences"}),
    ],
)
def test_questions_without_a_fault(criterion: dict[str, Any]) -> None:
    assert codes(ANSWER, criterion) == []


RUBRICS: list[tuple[str, list[dict[str, Any]]]] = [
    ("asked-twice", [ANSWER, {**ANSWER, "id": "again"}]),
    (
        "asked-twice",
        [
            judge("Does the answer state the total?"),
            {**judge("Does the answer state the total"), "id": "k"},
        ],
    ),
    (
        "weights-all-equal",
        [{"id": f"c{i}", "kind": "exact", "params": {"expected": str(i)}} for i in range(5)],
    ),
    (
        "one-decides",
        [
            {**ANSWER, "weight": 10},
            {"id": "b", "kind": "exact", "params": {"expected": "1"}},
            {"id": "c", "kind": "exact", "params": {"expected": "2"}},
        ],
    ),
    (
        "penalty-too-small",
        [
            {**ANSWER, "weight": 10},
            {"id": "a", "kind": "exact", "params": {"expected": "1"}, "weight": 10},
            {
                "id": "bad",
                "kind": "forbidden_command",
                "scope": "trajectory",
                "negative": True,
                "params": {"patterns": ["rm"]},
            },
        ],
    ),
    (
        "gate-at-the-end",
        [ANSWER, {"id": "g", "kind": "contains", "params": {"texts": ["a"]}, "gate": True}],
    ),
    (
        "gate-behind-a-judge",
        [
            judge("Does the answer state the total?"),
            {"id": "g", "kind": "contains", "params": {"texts": ["a"]}, "gate": True},
            ANSWER,
        ],
    ),
    (
        "nothing-to-do",
        [{"id": "s", "kind": "steps", "scope": "trajectory", "params": {"max": 3}}],
    ),
    (
        "likeness-decides",
        [{"id": "s", "kind": "similarity", "params": {"expected": "x"}, "required": True}],
    ),
    (
        "unsteady-code",
        [
            {
                "id": "p",
                "kind": "python",
                "scope": "trajectory",
                "params": {"source": "import random\ndef f(t):\n    return random.random()\n"},
            }
        ],
    ),
    (
        "panel-of-one",
        [
            {
                "id": "p",
                "kind": "judge_panel",
                "scope": "trajectory",
                "params": {"question": "Does it state the total?", "models": ["a", "a"]},
            }
        ],
    ),
]


@pytest.mark.parametrize(("code", "criteria"), RUBRICS)
def test_rubrics_that_score_badly(code: str, criteria: list[dict[str, Any]]) -> None:
    assert code in codes(*criteria)


def test_a_sound_rubric_has_no_findings() -> None:
    assert (
        codes(
            {"id": "answered", "kind": "regex", "params": {"pattern": r"\S"}, "gate": True},
            {**ANSWER, "weight": 8},
            judge("Does the answer state the total?"),
            {
                "id": "bad",
                "kind": "forbidden_command",
                "scope": "trajectory",
                "negative": True,
                "weight": 6,
                "params": {"patterns": ["rm"]},
            },
        )
        == []
    )


def test_warnings_come_first_and_each_finding_says_what_to_do() -> None:
    spec = from_json(
        {
            "criteria": [
                judge("Is the summary nice?"),
                {**judge("Does it agree with the reference answer?"), "id": "k"},
            ]
        }
    )
    found = lint(spec)
    assert [f.severity for f in found] == [Severity.WARNING, Severity.ADVICE]
    assert all(f.message.endswith((".", ".")) and f.fix and f.criterion for f in found)


@pytest.mark.parametrize("template", TEMPLATES, ids=[t.key for t in TEMPLATES])
def test_templates_are_valid_and_without_findings(template: Template) -> None:
    spec = from_json(dict(template.spec))
    assert lint(spec) == []
    # What earns nothing must not be paid.
    assert score_without_judges(spec) in (0.0, None)


def score_without_judges(spec: RubricSpec) -> float | None:
    """Of a rollout that does nothing."""
    kept = tuple(c for c in spec.criteria if c.kind != "judge")
    return score(replace(spec, criteria=kept), Transcript(reward=0.0, expected="42"))[0].value
