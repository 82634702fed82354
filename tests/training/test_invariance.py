"""How a step is cut into pieces changes neither its loss nor its gradient (1e-6 and below).

Through the whole network in float64: packing, token budget, head chunk, checkpointing, pieces
that accumulate, ranks that add up, dummy rows and padding; adapters and full weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from tests.training.builders import make_row, make_step
from training.llama import Llama, load_llama
from training.lora import LoraSpec
from training.losses import build_streams
from training.passes import PassOptions, forward_backward
from training.trainable import make_trainable
from training.types import (
    EnvNorm,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
    Row,
    RowStatus,
    TokenKind,
)

LIMIT = 1e-6
WHOLE = PassOptions(budget_tokens=10_000, head_chunk=10_000, measures_entropy=False)


@dataclass(frozen=True)
class Trained:
    """A small network in float64 that is trained in one of the two ways."""

    model: Llama
    parameters: list[Tensor]

    @classmethod
    def of(cls, folder: Path, *, lora: bool) -> Trained:
        model = load_llama(folder, dtype=torch.float64)
        named = make_trainable(model, LoraSpec(rank=3) if lora else None)
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for parameter in named.values():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(noise * 0.05)
        return cls(model, list(named.values()))

    def run(
        self,
        pieces: list[list[int]],
        rows: list[Row],
        spec: ObjectiveSpec,
        options: PassOptions = WHOLE,
    ) -> tuple[float, Tensor]:
        """Loss and gradient of a step whose rows arrive in pieces."""
        streams = build_streams(rows, spec)
        loss = 0.0
        for piece in pieces:
            part = replace(streams, rows=tuple(streams.rows[i] for i in piece))
            loss += forward_backward(self.model, [rows[i] for i in piece], part, spec, options).loss
        flat = torch.cat([p.grad.flatten() for p in self.parameters if p.grad is not None])
        for parameter in self.parameters:
            parameter.grad = None
        return loss, flat


@pytest.fixture(scope="module", params=[True, False], ids=["adapters", "full"])
def trained(request: pytest.FixtureRequest, tiny_folder: Path) -> Trained:
    return Trained.of(tiny_folder, lora=request.param)


def specs(seed: int) -> ObjectiveSpec:
    random = Random(seed)
    return ObjectiveSpec(
        lambda_env=random.choice([0.0, 0.05, 1.0]),
        env_norm=random.choice(list(EnvNorm)),
        pg_norm=random.choice(list(PgNorm)),
        policy_loss=random.choice(list(PolicyLoss)),
        max_seq_len=64,
        policy_temperature=random.choice([1.0, 0.8]),
        lambda_roles=random.choice([{}, {"warning": 0.2}]),
        log_ratio_penalty=random.choice([0.0, 1e-3]),
    )


def assert_same(one: tuple[float, Tensor], other: tuple[float, Tensor]) -> None:
    assert one[0] == pytest.approx(other[0], rel=LIMIT, abs=LIMIT)
    assert float((one[1] - other[1]).norm()) <= LIMIT * float(other[1].norm())


@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_a_step_give_the_whole(trained: Trained, seed: int) -> None:
    random = Random(seed)
    rows, spec = make_step(groups=2, attempts=3, shared=40, seed=seed), specs(seed)
    everyone = list(range(len(rows)))
    whole = trained.run([everyone], rows, spec)
    random.shuffle(everyone)
    cut = random.randrange(1, len(rows))
    small = PassOptions(budget_tokens=50, head_chunk=3, measures_entropy=True)
    assert_same(trained.run([everyone], rows, spec, small), whole)
    assert_same(trained.run([everyone[:cut], everyone[cut:]], rows, spec), whole)
    assert_same(trained.run([[i] for i in everyone], rows, spec), whole)
    checkpointed = replace(WHOLE, is_checkpointed=True)
    assert_same(trained.run([everyone], rows, spec, checkpointed), whole)


def test_ranks_add_up_to_the_whole(trained: Trained) -> None:
    """Two ranks with uneven shares, as data parallelism does it: mean of the ranks times two."""
    rows, spec = make_step(seed=9), ObjectiveSpec(env_norm=EnvNorm.GLOBAL_TOKENS)
    whole = trained.run([list(range(6))], rows, spec)
    ranks = [trained.run(pieces, rows, spec) for pieces in ([[0], [4, 1]], [[5, 2, 3]])]
    mean = torch.stack([gradient for _, gradient in ranks]).mean(0)
    assert_same((math.fsum(loss for loss, _ in ranks), mean * 2), whole)


def test_padding_and_dummy_rows_change_nothing(trained: Trained) -> None:
    rows, spec = make_step(seed=3), ObjectiveSpec()
    whole = trained.run([list(range(6))], rows, spec)
    padded = [
        replace(
            row,
            ids=(*row.ids, *[0] * n),
            kinds=(*row.kinds, *[TokenKind.PAD] * n),
            logprobs=(*(row.logprobs or ()), *[0.0] * n),
        )
        for n, row in enumerate(rows)
    ]
    dummy = make_row("AEA", rollout="dummy", status=RowStatus.PAD)
    assert_same(trained.run([list(range(7))], [*padded, dummy], spec), whole)
