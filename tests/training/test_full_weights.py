"""Training every weight: the gradient of plain autograd, and files that fit together again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.builders import make_step
from tests.training.test_local_backend import relative, separate_rows
from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.llama import load_llama
from training.losses import build_streams
from training.types import ObjectiveSpec


def full_session(folder: Path, *, budget: int = 1000) -> LocalSession:
    return LocalSession(
        ModelSpec(folder, None, dtype=torch.float64, budget_tokens=budget, head_chunk=5)
    )


def gradient(opened: LocalSession) -> Tensor:
    return torch.cat([p.grad.flatten() for p in opened.parameters if p.grad is not None])


@pytest.mark.parametrize(("budget", "shared"), [(1, 12), (1000, 12), (60, 150)])
def test_the_gradient_is_that_of_separate_rows(tiny_folder: Path, budget: int, shared: int) -> None:
    spec = ObjectiveSpec(lambda_env=0.3, policy_temperature=0.7)
    rows = [replace(row, logprobs=None) for row in make_step(shared=shared)]
    packed, plain = full_session(tiny_folder, budget=budget), full_session(tiny_folder)
    stats = packed.forward_backward(rows, build_streams(rows, spec), spec).result()
    assert stats.loss == pytest.approx(separate_rows(plain, rows, spec), abs=1e-10)
    # The head is tied to the embedding: one parameter with a gradient from both ends.
    assert len(gradient(packed)) == sum(p.numel() for p in packed.parameters)
    assert relative(gradient(packed), gradient(plain)) <= 1e-10


def test_a_saved_state_goes_on_bit_for_bit_and_publishes_a_model(
    tiny_folder: Path, tmp_path: Path
) -> None:
    rows, spec = make_step(), ObjectiveSpec()

    def step(opened: LocalSession) -> None:
        opened.forward_backward(rows, build_streams(rows, spec), spec)
        opened.optim_step(AdamSpec(learning_rate=1e-3)).result()

    straight = full_session(tiny_folder)
    step(straight)
    straight.save_state(tmp_path / "state").result()
    other = full_session(tiny_folder)
    other.load_state(tmp_path / "state").result()
    for opened in (straight, other):
        step(opened)
    pairs = list(zip(straight.parameters, other.parameters, strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    version = straight.publish(tmp_path, 1).result()
    published = load_llama(version.adapter, dtype=torch.float64)
    assert torch.equal(published.lm_head.weight, straight.model.lm_head.weight)
    assert (version.adapter / "tokenizer.json").exists()
