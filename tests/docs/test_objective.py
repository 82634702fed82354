"""The page of the objective names every option that a manifest takes."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path

import pytest

from training.filters import FilterSpec
from training.types import (
    AdvantageMode,
    AdvantageSpec,
    EnvNorm,
    EnvTarget,
    InfrastructureRows,
    KlKind,
    MismatchCorrection,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
    TokenKind,
)

PAGE = (Path(__file__).parents[2] / "docs/reference/objective.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("record", [ObjectiveSpec, AdvantageSpec, FilterSpec])
def test_every_field_is_on_the_page(record: type) -> None:
    missing = [f.name for f in dataclasses.fields(record) if f"`{f.name}`" not in PAGE]
    assert missing == []


@pytest.mark.parametrize(
    "options",
    [
        *(TokenKind, EnvNorm, PgNorm, EnvTarget, PolicyLoss, AdvantageMode),
        *(KlKind, MismatchCorrection, InfrastructureRows),
    ],
)
def test_every_choice_is_on_the_page(options: type[StrEnum]) -> None:
    assert [option for option in options if f"`{option.value}`" not in PAGE] == []
