"""Jobs handed over to prime-rl: what is said there, and what is told that cannot be said."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training.backends.primerl import NO_CLIP, Place, Source, export, validate
from training.errors import ConfigurationError
from training.filters import FilterSpec
from training.manifest import Manifest, ModelPart, OptimiserPart
from training.schedule import RateKind, RateSpec
from training.types import (
    AdvantageMode,
    AdvantageSpec,
    EnvNorm,
    EnvTarget,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
)

SOURCE = Source("grid", "http://env-host:8102", ({"seed": 1}, {"seed": 2, "task": "ä"}))
PLACE = Place("Qwen/Qwen3-0.6B", (SOURCE,))
THEIRS = ObjectiveSpec(
    env_norm=EnvNorm.GLOBAL_TOKENS,
    env_target=EnvTarget.ALL,
    policy_loss=PolicyLoss.DPPO,
    log_ratio_penalty=1e-3,
    pg_norm=PgNorm.TOKEN_MEAN,
    advantage=AdvantageSpec(mode=AdvantageMode.CENTRE),
)
"""All that prime-rl computes as we do."""


def manifest(**changes: Any) -> Manifest:
    return Manifest(model=ModelPart(folder="/models/qwen", name="qwen"), **changes)


def told(subject: Manifest) -> dict[str, Any]:
    return tomllib.loads(export(subject, PLACE).toml)


def test_observations_are_trained_on_as_user_turns() -> None:
    config = told(manifest(objective=replace(THEIRS, lambda_env=0.2)))
    assert config["orchestrator"]["algo"] == {"type": "echo", "roles": {"user": {"alpha": 0.2}}}
    source = config["orchestrator"]["train"]["source"][0]
    assert source["env"]["taskset"] == {
        "id": "openenv",
        "base_url": SOURCE.base_url,
        "resets": [{"seed": 1}, {"seed": 2, "task": "ä"}],
    }
    assert config["trainer"]["model"]["lora"]["rank"] == 16
    assert "lora" not in config["model"]
    assert config["orchestrator"]["batch_size"] == 4 * 8


def test_no_lambda_is_plain_grpo() -> None:
    config = told(manifest(objective=replace(THEIRS, lambda_env=0.0)))
    assert config["orchestrator"]["algo"] == {"type": "grpo"}


def test_nothing_is_told_where_both_mean_the_same() -> None:
    assert export(manifest(objective=THEIRS), PLACE).notes == ()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"objective": replace(THEIRS, policy_loss=PolicyLoss.PPO_CLIP)}, "policy loss ppo_clip"),
        ({"objective": replace(THEIRS, env_norm=EnvNorm.RAW_SUM)}, "under raw_sum"),
        ({"objective": replace(THEIRS, env_target=EnvTarget.ENV_ONLY)}, "warnings"),
        ({"objective": replace(THEIRS, pg_norm=PgNorm.SEQUENCE_MEAN)}, "pg_norm sequence_mean"),
        (
            {"objective": replace(THEIRS, advantage=AdvantageSpec(mode=AdvantageMode.STD))},
            "advantage std",
        ),
        ({"objective": replace(THEIRS, env_temperature=0.5)}, "T = 1"),
        ({"objective": replace(THEIRS, kl_coef=0.1)}, "KL to a reference"),
        ({"filters": FilterSpec(volatile_spans=True)}, "volatile spans"),
        ({"lambda_schedule": {"kind": "constant", "initial": 0.05}}, "has a schedule"),
        ({"optimiser": OptimiserPart(eps=1e-6)}, "eps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_prime_rl_does_otherwise_is_told(changes: dict[str, Any], word: str) -> None:
    found = export(manifest(**{"objective": THEIRS, **changes}), PLACE)
    assert len(found.notes) == 1 and word in found.notes[0]
    assert f"# Differs: {found.notes[0]}" in found.toml


@pytest.mark.parametrize(
    ("part", "scheduler"),
    [
        (RateSpec(), {"type": "constant"}),
        (RateSpec(warmup_steps=3), {"type": "linear", "warmup_steps": 3, "decay_steps": 0}),
        (
            RateSpec(base=1e-4, kind=RateKind.LINEAR, warmup_steps=2, horizon_steps=10, floor=0.5),
            {"type": "linear", "warmup_steps": 2, "decay_steps": 8, "min_lr": 5e-5},
        ),
        (
            RateSpec(base=1e-4, kind=RateKind.COSINE, horizon_steps=10),
            {"type": "cosine", "warmup_steps": 0, "min_lr": 0.0},
        ),
    ],
)
def test_schedules_of_the_learning_rate(part: RateSpec, scheduler: dict[str, Any]) -> None:
    config = told(manifest(optimiser=OptimiserPart(rate=part)))
    assert config["trainer"]["scheduler"] == scheduler


def test_a_clip_that_is_off_stays_off() -> None:
    assert (
        told(manifest(optimiser=OptimiserPart(clip_norm=0.0)))["trainer"]["optim"]["max_norm"]
        == NO_CLIP
    )


@pytest.mark.parametrize(
    ("subject", "place", "word"),
    [
        (manifest(objective=replace(THEIRS, use_rl=False)), PLACE, "use_rl"),
        (manifest(), Place("m", ()), "needs an environment"),
        (manifest(), Place("m", (Source("a", "unix:/x", ({},)),)), "no address"),
        (manifest(), Place("m", (Source("a", "http://x", ()),)), "no tasks"),
    ],
)
def test_what_cannot_be_handed_over_is_refused(subject: Manifest, place: Place, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        export(subject, place)


def test_a_python_without_their_classes_is_named() -> None:
    with pytest.raises(ConfigurationError, match="prime-rl-configs"):
        validate(export(manifest(), PLACE).toml, python=sys.executable)


def test_their_objections_are_handed_on(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncat > /dev/null\necho 'seq_lenx: not permitted'\nexit 3\n")
    python.chmod(0o700)
    assert validate("seq_lenx = 1", python=python) == "seq_lenx: not permitted"
