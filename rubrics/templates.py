"""Rubrics to start from: each complete, valid and without findings of the linter.

A template is copied, not linked: what a team publishes is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Template:
    key: str
    name: str
    about: str
    """For whom, in a sentence."""
    spec: Mapping[str, Any]
    """Rubric JSON."""


def _criterion(id: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "kind": kind, "name": name, **fields}


_ANSWERED = _criterion(
    "answered",
    "regex",
    "Gives an answer",
    params={"pattern": r"\S"},
    gate=True,
    weight=1,
)

TEMPLATES: tuple[Template, ...] = (
    Template(
        "environment-reward",
        "The environment's own reward",
        "For environments that judge by themselves: their reward is the score.",
        {"criteria": [_criterion("reward", "environment_reward", "Reward of the environment")]},
    ),
    Template(
        "exact-answer",
        "An exact answer",
        "For questions with one right answer in words.",
        {
            "criteria": [
                _ANSWERED,
                _criterion(
                    "right_answer",
                    "exact",
                    "Equals the reference answer",
                    params={"ignore_case": True},
                    weight=10,
                    required=True,
                ),
            ]
        },
    ),
    Template(
        "number",
        "A number within a tolerance",
        "For calculations and measurements.",
        {
            "criteria": [
                _ANSWERED,
                _criterion(
                    "right_number",
                    "number",
                    "Is the expected number",
                    params={"rel_tol": 0.001},
                    weight=10,
                    required=True,
                ),
            ]
        },
    ),
    Template(
        "json-record",
        "A JSON record",
        "For extraction into a fixed form; put your fields into the schema.",
        {
            "criteria": [
                _criterion(
                    "valid",
                    "json_schema",
                    "Is JSON of the form",
                    params={"schema": {"type": "object", "required": ["id"]}},
                    weight=3,
                    gate=True,
                ),
                _criterion(
                    "right_id",
                    "json_path",
                    "Names the record",
                    params={"path": "$.id"},
                    weight=7,
                ),
            ]
        },
    ),
    Template(
        "terminal",
        "A task in a shell",
        "For files and commands: the answer counts, detours cost, deletions are a penalty.",
        {
            "criteria": [
                _criterion(
                    "solved",
                    "environment_reward",
                    "The environment accepts the answer",
                    weight=10,
                    required=True,
                ),
                _criterion(
                    "few_steps",
                    "steps",
                    "Needs few commands",
                    params={"within": 2, "max": 6},
                    scope="trajectory",
                    weight=3,
                ),
                _criterion(
                    "deletes",
                    "forbidden_command",
                    "Deletes files",
                    params={"patterns": [r"\brm\b", r"\bshred\b"]},
                    scope="trajectory",
                    weight=8,
                    negative=True,
                ),
            ]
        },
    ),
    Template(
        "database",
        "A change in a database",
        "For SQL environments: the resulting state counts; statements that drop tables fail it.",
        {
            "criteria": [
                _criterion(
                    "right_state",
                    "environment_reward",
                    "The state is the expected one",
                    weight=10,
                    required=True,
                ),
                _criterion(
                    "few_steps",
                    "steps",
                    "Needs few statements",
                    params={"within": 3, "max": 8},
                    scope="trajectory",
                    weight=2,
                ),
            ]
        },
    ),
    Template(
        "tools",
        "Work with tools",
        "For MCP tools and functions: looks before it acts; put your tools' names in.",
        {
            "criteria": [
                _criterion(
                    "solved",
                    "environment_reward",
                    "The environment accepts the result",
                    weight=10,
                    required=True,
                ),
                _criterion(
                    "looked_first",
                    "tool_order",
                    "Looks up before it decides",
                    params={"tools": ["search", "submit"]},
                    scope="trajectory",
                    weight=3,
                ),
            ]
        },
    ),
    Template(
        "written-answer",
        "A written answer, judged",
        "For answers in prose: one idea for each judge, yes or no.",
        {
            "criteria": [
                _ANSWERED,
                _criterion(
                    "agrees",
                    "judge",
                    "Agrees with the reference",
                    params={
                        "question": "Does the final answer agree with the reference answer in "
                        "every fact that both state?",
                        "sees": ["task", "answer", "expected"],
                    },
                    weight=8,
                    required=True,
                ),
                _criterion(
                    "to_the_point",
                    "judge",
                    "Answers what was asked",
                    params={
                        "question": "Does the final answer address the question of the task?",
                        "sees": ["task", "answer"],
                    },
                    weight=4,
                ),
                _criterion(
                    "invents",
                    "judge",
                    "Claims what was not observed",
                    params={
                        "question": "Does the final answer claim something that no observation of "
                        "the trace supports?",
                        "sees": ["task", "steps", "answer"],
                    },
                    scope="trajectory",
                    weight=6,
                    negative=True,
                ),
            ]
        },
    ),
)


def template(key: str) -> Template:
    """Raises KeyError, which names what there is, for one that does not exist."""
    for found in TEMPLATES:
        if found.key == key:
            return found
    raise KeyError(f"{key}; there are {', '.join(t.key for t in TEMPLATES)}")
