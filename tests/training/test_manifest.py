"""Manifests: strict, hashed, and complete."""

from __future__ import annotations

import json
from typing import Any

import pytest

from training.errors import ConfigurationError
from training.manifest import Manifest, ModelPart


def values(**changes: Any) -> dict[str, Any]:
    return {"model": {"folder": "/models/tiny"}, **changes}


def test_a_manifest_survives_its_json_form_and_freezes_defaults() -> None:
    manifest = Manifest.from_json(values(objective={"lambda_env": 0.1, "env_norm": "raw_sum"}))
    written = json.loads(json.dumps(manifest.to_json()))
    assert Manifest.from_json(written) == manifest
    assert Manifest.from_json(written).sha256 == manifest.sha256
    assert written["optimiser"]["clip_norm"] == 1.0


def test_the_hash_depends_on_the_meaning_not_on_the_spelling() -> None:
    plain = Manifest(model=ModelPart(folder="/models/tiny"))
    assert Manifest.from_json(values(seed=0)).sha256 == plain.sha256
    assert Manifest.from_json(values(seed=1)).sha256 != plain.sha256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lamda": 0.1}, r"manifest\.lamda: unknown"),
        ({"objective": {"env_norm": "token"}}, "'token' is not one of full_observation_tokens"),
        ({"objective": {"lambda_env": "0.05"}}, "lambda_env: expected float"),
        ({"objective": {"lambda_env": -1}}, "must be 0 or more"),
        ({"budgets": {"steps": 0}}, r"budgets\.steps: 0 is not positive"),
        ({"budgets": {"steps": True}}, r"budgets\.steps: expected int"),
        ({"lora": {"targets": "q_proj"}}, "expected a list"),
        ({"model": {}}, r"model\.folder: missing"),
        ({"model": 3}, "expected an object"),
        ({"sampling": {"temperature": 0.7}}, "sampled at 0.7"),
        ({"execution": {"backend": "cloud"}}, "'cloud' is not one of local"),
        ({"lambda_schedule": {"schedule": "zigzag"}}, "zigzag"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Manifest.from_json(values(**changes))
