"""The optimiser: AdamW as torch computes it, masters for half precision, state that goes on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.optimiser import Optimiser

SETTINGS = {
    "learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "weight_decay": 0.1,
}


def draw(seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(40, generator=torch.Generator().manual_seed(seed)).to(dtype)


def train(parameter: nn.Parameter, optimiser: Optimiser, seeds: range) -> None:
    for seed in seeds:
        parameter.grad = draw(seed, parameter.dtype)
        optimiser.step(**SETTINGS)
        optimiser.zero_grad()


def test_steps_are_those_of_adamw() -> None:
    ours, theirs = nn.Parameter(draw(0)), nn.Parameter(draw(0))
    optimiser = Optimiser({"w": ours})
    plain = torch.optim.AdamW([theirs], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    train(ours, optimiser, range(1, 5))
    for seed in range(1, 5):
        theirs.grad = draw(seed)
        plain.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_small_steps_add_up_on_half_precision_weights() -> None:
    """Each of these is below half the distance of neighbouring bf16 numbers at 1."""
    start = torch.ones(40, dtype=torch.bfloat16)
    parameter = nn.Parameter(start.clone())
    optimiser = Optimiser({"w": parameter})
    for _ in range(20):
        parameter.grad = torch.ones_like(parameter)
        optimiser.step(**{**SETTINGS, "weight_decay": 0.0})
    assert parameter.dtype == torch.bfloat16
    assert float(parameter.detach().mean()) < 0.985


def test_half_precision_goes_on_from_its_tensors_bit_for_bit() -> None:
    straight = nn.Parameter(draw(0, torch.bfloat16))
    first = Optimiser({"w": straight})
    train(straight, first, range(1, 4))
    stored = {name: tensor.clone() for name, tensor in first.tensors().items()}
    assert set(stored) == {"w/step", "w/exp_avg", "w/exp_avg_sq", "w/master"}
    other = nn.Parameter(straight.detach().clone())
    second = Optimiser({"w": other})
    second.load(stored)
    train(straight, first, range(4, 7))
    train(other, second, range(4, 7))
    assert torch.equal(straight, other)
