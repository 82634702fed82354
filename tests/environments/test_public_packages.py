"""Libraries from PyPI, installed by our installer and played in the sandbox."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.episode import View, run_episode
from orchestrator.environments.kinds.package import PackageKind
from orchestrator.environments.packages.install import prepare_package
from orchestrator.environments.probe import SeedEffect, probe
from orchestrator.environments.resources import Resources
from tests.doubles import public
from tests.environments.conftest import needs_bubblewrap

pytestmark = [needs_bubblewrap, pytest.mark.slow]
FOLDER = Path(public.__file__).parent


def calculator() -> Callable[[View], Mapping[str, Any]]:
    def act(view: View) -> Mapping[str, Any]:
        terms = re.findall(r"[-+]?\s*\d+", str(view.observation["question"]).split(":")[-1])
        return {"answer": str(sum(int(term.replace(" ", "")) for term in terms))}

    return act


def guesser() -> Callable[[View], Mapping[str, Any]]:
    low, high, guess = 1, 20, 0

    def act(view: View) -> Mapping[str, Any]:
        nonlocal low, high, guess
        said = str(view.observation["text"]).lower()
        if guess:
            if said.rfind("higher") > said.rfind("lower"):
                low = guess + 1
            else:
                high = guess - 1
        guess = (low + high) // 2
        return {"message": f"[{guess}]"}

    return act


@pytest.mark.parametrize(
    ("name", "agent", "package", "seed"),
    [
        ("sums_env", calculator, "reasoning-gym", SeedEffect.HONOURED),
        ("guess_number_env", guesser, "textarena", None),
    ],
)
def test_a_library_is_installed_apart_and_played(
    tmp_path: Path,
    name: str,
    agent: Callable[[], Callable[[View], Mapping[str, Any]]],
    package: str,
    seed: SeedEffect | None,
) -> None:
    prepared = prepare_package(
        {"path": str(FOLDER / name)}, data=tmp_path, report=print, check=lambda: None
    )
    names = [
        text.partition("==")[0].lower().replace("_", "-") for text in prepared.source["installed"]
    ]
    assert package in names
    assert "openenv" not in names
    spec = PackageKind().server(
        name="v1", source=prepared.source, resources=Resources(), specs=[], data=tmp_path
    )
    with spec.make(tmp_path / "server") as server:
        result = asyncio.run(run_episode(server.base_url, agent(), reset={"seed": 3}))
        assert result.reward == 1.0, result
        if seed is not None:
            assert asyncio.run(probe(server.base_url)).seed is seed
