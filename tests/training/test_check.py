"""`python -m training.check`: passes right files, fails wrong ones, refuses other formats."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from training.check import main

VECTORS = Path(__file__).parents[1] / "vectors" / "echo.json"

# One case per kind, worked out by hand.
CASES: list[dict[str, Any]] = [
    {
        "id": "base",
        "kind": "objective",
        "input": {
            "rollouts": [
                {
                    "group": "g0",
                    "reward": 1.0,
                    "status": "ok",
                    "roles": "AAWEEAE",
                    "logprobs": [-0.2, -0.4, "-inf", -0.5, -1.0, -0.6, -2.0],
                    "old_logprobs": [-0.2, -0.4, 0.0, 0.0, 0.0, -0.6, 0.0],
                },
                {
                    "group": "g0",
                    "reward": 0.0,
                    "status": "ok",
                    "roles": "AE",
                    "logprobs": [-1.0, -3.0],
                    "old_logprobs": [-1.0, 0.0],
                },
            ],
            "env_norm": "full_observation_tokens",
            "env_eps": 0.0,
            "pg_norm": "sequence_mean",
            "max_seq_len": None,
            "advantage": {"std": False, "eps": 1e-6},
            "clip": {"low": 0.2, "high": 0.2},
            "use_rl": True,
            "env_target": "env_only",
            "cut": None,
            "max_env_tokens_per_observation": None,
            "splits": [[[[0], [1]]], [[[0]], [[1]]]],
            "lambda": 0.05,
        },
        "expected": {
            "batch_size": 2,
            "counts": {"action": [3, 1], "env_target": [3, 1], "observation": [4, 1]},
            "advantages": [0.5, -0.5],
            "loss_pg": 0.0,
            "loss_env": 1.9375,
            "loss": 0.096875,
        },
        "checks": ["split_invariant", "linear_in_lambda"],
        "must_not_equal": [{"field": "loss_env", "value": 1.625, "why": "token mean"}],
    },
    {
        "id": "uniform",
        "kind": "logits",
        "input": {
            "sequences": [
                {
                    "group": "g0",
                    "reward": 0.0,
                    "status": "ok",
                    "token_ids": [1, 0],
                    "roles": "CE",
                    "logits": [[0.0, 0.0], [9.0, 0.0]],
                    "old_logprobs": None,
                }
            ],
            "policy_temperature": 0.5,
            "env_temperature": 1.0,
            "env_norm": "global_tokens",
            "pg_norm": "sequence_mean",
            "advantage": {"std": True, "eps": 1e-6},
            "clip": {"low": 0.2, "high": 0.2},
            "use_rl": False,
            "lambda": 1.0,
        },
        "expected": {
            "loss": 0.6931471805599453,
            "grad_logits": [[[-0.5, 0.5], [0.0, 0.0]]],
            "nonzero_grad_rows": [[0, 0]],
        },
        "checks": ["rows_sum_to_zero", "finite"],
    },
    {
        "id": "steps",
        "kind": "schedule",
        "input": {
            "schedule": "step_decay",
            "initial": 0.1,
            "steps": [0, 10, 20],
            "values": [0.1, 0.05, 0.0],
            "steps_to_check": [0, 9, 10, 25],
        },
        "expected": {"coefficients": [0.1, 0.1, 0.05, 0.0]},
    },
    {
        "id": "transition",
        "kind": "schedule",
        "input": {
            "schedule": "step_decay",
            "initial": 0.1,
            "final": 0.01,
            "transition_step": 5,
            "steps_to_check": [4, 5],
        },
        "expected": {"coefficients": [0.1, 0.01]},
    },
    {
        "id": "constant",
        "kind": "schedule",
        "input": {"schedule": "constant", "initial": 0.05, "steps_to_check": [0, 1000]},
        "expected": {"coefficients": [0.05, 0.05]},
    },
    {
        "id": "tree",
        "kind": "shared_prefix",
        "input": {
            "branches": [
                [
                    {"token": "s", "role": "E", "logprob": -1.0},
                    {"token": "a", "role": "E", "logprob": -2.0},
                ],
                [
                    {"token": "s", "role": "E", "logprob": -1.0},
                    {"token": "b", "role": "E", "logprob": -6.0},
                ],
            ],
            "env_norm": "global_tokens",
        },
        "expected": {"env_tokens": 3, "loss_env": 3.0},
    },
]


def document(**changes: Any) -> dict[str, Any]:
    return {"format": "echo-vectors/1", "case_count": len(CASES), "cases": CASES, **changes}


def run(tmp_path: Path, content: dict[str, Any]) -> int:
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return main([str(path)])


def test_right_vectors_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(tmp_path, document())
    assert capsys.readouterr().out.endswith("6 cases, 6 passed, 0 failed\n")
    assert code == 0


@pytest.mark.parametrize(
    ("case", "path", "value"),
    [
        ("base", ("expected", "loss_env"), 2.0),
        ("base", ("expected", "counts", "action"), [3, 2]),
        ("base", ("expected", "invented"), 1.0),
        ("base", ("checks",), ["same_loss_as:uniform"]),
        ("base", ("checks",), ["lambda_zero_bitwise"]),
        ("base", ("checks",), ["no_such_check"]),
        ("base", ("must_not_equal",), [{"field": "loss_env", "value": 1.9375}]),
        ("base", ("kind",), "unheard-of"),
        ("uniform", ("expected", "nonzero_grad_rows"), []),
        ("steps", ("expected", "coefficients"), [0.1, 0.1, 0.05, 0.1]),
    ],
)
def test_a_wrong_value_fails(
    tmp_path: Path, case: str, path: tuple[str, ...], value: object
) -> None:
    content = copy.deepcopy(document())
    if path[0] == "must_not_equal":
        content["cases"][0]["expected"].pop("loss_env")
    target = next(c for c in content["cases"] if c["id"] == case)
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = value
    if path[0] == "must_not_equal":
        content["cases"][0]["expected"]["loss_env"] = 1.0
    assert run(tmp_path, content) == 1


def test_another_format_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path, document(format="echo-vectors/2")) == 2
    assert main([str(tmp_path / "missing.json")]) == 2


def test_missing_cases_are_noticed(tmp_path: Path) -> None:
    assert run(tmp_path, document(case_count=7)) == 1


def test_the_published_vectors_pass() -> None:
    assert main([str(VECTORS)]) == 0
