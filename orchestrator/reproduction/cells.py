"""What is run: sizes, and the cells of a grid of seeds by lambda. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from training.manifest import (
    BatchPart,
    BudgetPart,
    EvaluationPart,
    ExecutionPart,
    LoraPart,
    Manifest,
    ModelPart,
    OptimiserPart,
)
from training.schedule import RateSpec
from training.types import AdvantageMode, AdvantageSpec, EnvNorm, ObjectiveSpec

LAMBDAS = (0.0, 0.005, 0.05, 0.2)
SEEDS = (0, 1, 2)
TEMPERATURE = 0.7
"""Of rollouts that are trained on; evaluations are greedy."""
MAX_TOKENS = 32


@dataclass(frozen=True)
class Size:
    """How much one cell does; every figure that a result depends on."""

    name: str
    steps: int
    groups: int
    """Tasks of a step."""
    samples: int
    """Rollouts of a task."""
    demonstrations: int
    """That the harness tells; without any the model solves nothing, and no reward has a spread."""
    every: int
    """Steps between two evaluations on held-out tasks (split `select`)."""
    train: int
    """Tasks to train on."""
    select: int
    test: int
    pool: int
    """Author's transcripts of further tasks: what the surprise at the environment is measured on.
    """
    learning_rate: float = 1e-4

    def fingerprint(self) -> dict[str, Any]:
        """Stands in every result, so that lines of different sizes are never joined."""
        return asdict(self)


SIZES = {
    size.name: size
    for size in (
        Size(
            name="small",
            steps=8,
            groups=3,
            samples=5,
            demonstrations=7,
            every=4,
            train=56,
            select=14,
            test=28,
            pool=14,
            learning_rate=2e-4,
        ),
        Size(
            name="full",
            steps=40,
            groups=8,
            samples=8,
            demonstrations=14,
            every=5,
            train=280,
            select=42,
            test=140,
            pool=42,
        ),
    )
}


@dataclass(frozen=True)
class Cell:
    """One training."""

    seed: int
    value: float
    """Lambda."""

    @property
    def name(self) -> str:
        return f"s{self.seed}-l{self.value:g}"


def grid(seeds: Sequence[int], values: Sequence[float]) -> list[Cell]:
    """Seed by seed, so that whatever is interrupted leaves whole comparisons behind."""
    return [Cell(seed, value) for seed, value in product(seeds, values)]


def manifest_of(cell: Cell, size: Size, *, model: Path, threads: int) -> Manifest:
    """Two cells of one seed differ in lambda alone, as the published configurations do."""
    return Manifest(
        model=ModelPart(folder=str(model)),
        lora=LoraPart(rank=16, alpha=32.0),
        objective=ObjectiveSpec(
            lambda_env=cell.value,
            env_norm=EnvNorm.FULL_OBSERVATION_TOKENS,
            policy_temperature=TEMPERATURE,
            advantage=AdvantageSpec(mode=AdvantageMode.STD),
        ),
        optimiser=OptimiserPart(rate=RateSpec(base=size.learning_rate, warmup_steps=1)),
        batch=BatchPart(groups_per_step=size.groups, group_size=size.samples),
        sampling={"temperature": TEMPERATURE},
        data={"environment": "terminal", "size": size.fingerprint()},
        seed=cell.seed,
        execution=ExecutionPart(threads=threads, measures_entropy=False),
        evaluation=EvaluationPart(every_steps=size.every),
        budgets=BudgetPart(steps=size.steps, rows_timeout_s=7200.0, update_timeout_s=7200.0),
    )
