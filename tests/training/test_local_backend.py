"""The local backend: gradients of packs, the two losses in one pass, steps, state."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.builders import make_step
from training import objective, passes
from training.backends.base import AdamSpec, PassStats
from training.backends.local import LocalSession, ModelSpec
from training.errors import NumericalError
from training.llama import Llama, forward_packed
from training.lora import LoraSpec
from training.losses import build_streams
from training.tree import forward_tree
from training.types import EnvNorm, ObjectiveSpec, Row


def session(
    folder: Path, *, budget: int = 1000, chunk: int = 7, adapted: bool = True
) -> LocalSession:
    opened = LocalSession(
        ModelSpec(folder, LoraSpec(rank=4, seed=3), budget_tokens=budget, head_chunk=chunk)
    )
    if adapted:
        generator = torch.Generator().manual_seed(4)
        with torch.no_grad():
            for parameter in opened.parameters:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return opened


def gradient(opened: LocalSession) -> Tensor:
    found = [p.grad if p.grad is not None else torch.zeros_like(p) for p in opened.parameters]
    return torch.cat([grad.flatten() for grad in found])


def pass_over(opened: LocalSession, rows: list[Row], spec: ObjectiveSpec) -> PassStats:
    return opened.forward_backward(rows, build_streams(rows, spec), spec).result()


def relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def separate_rows(opened: LocalSession, rows: list[Row], spec: ObjectiveSpec) -> float:
    """The definition on full logits, row by row, by plain autograd."""
    streams = build_streams(rows, spec)
    total = 0.0
    for row, stream in zip(rows, streams.rows, strict=True):
        hidden = forward_packed(opened.model, torch.tensor(row.ids), [])
        parts = objective.from_logits([opened.model.lm_head(hidden)], [row.ids], [stream], spec)
        parts.loss.backward()  # type: ignore[no-untyped-call]
        total += float(parts.loss.detach())
    return total


@pytest.mark.parametrize("lambda_env", [0.0, 0.05, 1.0])
@pytest.mark.parametrize(("budget", "shared"), [(1, 12), (60, 12), (1000, 12), (60, 150)])
def test_packs_give_the_gradient_of_separate_rows(
    tiny_folder: Path, lambda_env: float, budget: int, shared: int
) -> None:
    spec = ObjectiveSpec(lambda_env=lambda_env, policy_temperature=0.7, clip_low=0.9, clip_high=9.0)
    rows = [replace(row, logprobs=None) for row in make_step(shared=shared)]
    packed, plain = session(tiny_folder, budget=budget), session(tiny_folder)
    stats = pass_over(packed, rows, spec)
    expected = separate_rows(plain, rows, spec)
    assert stats.loss == pytest.approx(expected, abs=1e-5)
    assert relative(gradient(packed), gradient(plain)) <= 1e-5
    if budget == 1000 or shared == 150:
        assert stats.packed_tokens < 0.7 * stats.row_tokens


def test_one_pass_equals_two_passes(tiny_folder: Path) -> None:
    rows = make_step()
    both = ObjectiveSpec(lambda_env=0.05, env_norm=EnvNorm.GLOBAL_TOKENS)
    one, two = session(tiny_folder), session(tiny_folder)
    pass_over(one, rows, both)
    pass_over(two, rows, replace(both, lambda_env=0.0))
    pass_over(two, rows, replace(both, use_rl=False))
    assert relative(gradient(one), gradient(two)) <= 1e-5


def test_lambda_zero_is_the_policy_loss_bit_for_bit(tiny_folder: Path) -> None:
    rows = make_step()
    blind = [
        replace(
            row, kinds=tuple(k if k == "action" else make_step()[0].kinds[0] for k in row.kinds)
        )
        for row in rows
    ]
    spec = ObjectiveSpec(lambda_env=0.0)
    one, two = session(tiny_folder), session(tiny_folder)
    first, second = pass_over(one, rows, spec), pass_over(two, blind, spec)
    assert first.env_loss is None
    assert (first.loss, first.n_env_tokens) == (second.loss, 0)
    assert torch.equal(gradient(one), gradient(two))


def test_chunks_of_the_head_do_not_matter(tiny_folder: Path) -> None:
    rows = [replace(row, logprobs=None) for row in make_step()]
    spec = ObjectiveSpec()
    results = []
    for chunk in (1, 3, 10_000):
        opened = session(tiny_folder, chunk=chunk)
        pass_over(opened, rows, spec)
        results.append(gradient(opened))
    assert relative(results[0], results[2]) <= 3e-6
    assert relative(results[1], results[2]) <= 3e-6


def test_statistics_describe_the_tokens_of_the_policy_stream(tiny_folder: Path) -> None:
    rows, spec = make_step(), ObjectiveSpec()
    opened = session(tiny_folder)
    logprobs = opened.forward(rows, temperature=1.0).result()
    sampled = [
        replace(
            row,
            logprobs=(
                0.0,
                *(lp if k == "action" else 0.0 for lp, k in zip(lps, row.kinds[1:], strict=True)),
            ),
        )
        for row, lps in zip(rows, logprobs, strict=True)
    ]
    stats = pass_over(opened, sampled, spec)
    actions = sum(row.kinds.count("action") for row in rows)
    assert len(stats.log_ratios) == len(stats.entropies) == actions
    assert max(map(abs, stats.log_ratios)) <= 1e-4
    assert all(0.0 < value < math.log(300) for value in stats.entropies)


def test_a_step_without_any_target_does_nothing(tiny_folder: Path) -> None:
    rows = [replace(row, reward=None) for row in make_step()]
    opened = session(tiny_folder)
    before = [p.detach().clone() for p in opened.parameters]
    stats = pass_over(opened, rows, ObjectiveSpec(lambda_env=0.0))
    outcome = opened.optim_step(AdamSpec()).result()
    assert (stats.loss, stats.packs, outcome.grad_norm) == (0.0, 0, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, opened.parameters, strict=True))


def test_steps_lower_the_loss_of_their_own_rows(tiny_folder: Path) -> None:
    rows, spec = make_step(), ObjectiveSpec(lambda_env=1.0, use_rl=False)
    opened = session(tiny_folder, adapted=False)
    losses = []
    for _ in range(5):
        losses.append(pass_over(opened, rows, spec).loss)
        opened.optim_step(AdamSpec(learning_rate=3e-3)).result()
    assert losses == sorted(losses, reverse=True)


def test_the_gradient_is_clipped_to_the_norm(tiny_folder: Path) -> None:
    rows, spec = make_step(), ObjectiveSpec()
    results = []
    for clip in (1e-3, 0.0):
        opened = session(tiny_folder)
        pass_over(opened, rows, spec)
        before = opened.parameters[0].detach().clone()
        # An eps far above the gradient makes the step linear in it, so that scale shows.
        outcome = opened.optim_step(AdamSpec(learning_rate=1e6, eps=1e6, clip_norm=clip)).result()
        results.append((outcome.grad_norm, (opened.parameters[0] - before).norm().item()))
    (norm, clipped), (same_norm, free) = results
    assert norm == same_norm
    assert clipped / free == pytest.approx(1e-3 / norm, rel=0.02)


def test_a_gradient_that_is_not_finite_skips_the_step_and_three_fail(tiny_folder: Path) -> None:
    opened = session(tiny_folder)
    rows, spec = make_step(), ObjectiveSpec()
    before = [p.detach().clone() for p in opened.parameters]
    for attempt in (1, 2):
        pass_over(opened, rows, spec)
        grad = opened.parameters[0].grad
        assert grad is not None
        grad[0, 0] = math.nan
        outcome = opened.optim_step(AdamSpec()).result()
        assert (outcome.is_skipped, outcome.skipped_in_a_row) == (True, attempt)
    assert all(torch.equal(a, b) for a, b in zip(before, opened.parameters, strict=True))
    pass_over(opened, rows, spec)
    grad = opened.parameters[0].grad
    assert grad is not None
    grad[0, 0] = math.inf
    with pytest.raises(NumericalError, match="3 steps in a row"):
        opened.optim_step(AdamSpec())


def test_training_goes_on_bit_for_bit_after_a_save(tiny_folder: Path, tmp_path: Path) -> None:
    spec = ObjectiveSpec()

    def train(opened: LocalSession, seeds: range) -> None:
        for seed in seeds:
            pass_over(opened, make_step(seed=seed), spec)
            opened.optim_step(AdamSpec(learning_rate=1e-2)).result()

    straight = session(tiny_folder)
    train(straight, range(6))
    first = session(tiny_folder)
    train(first, range(3))
    first.save_state(tmp_path / "state").result()
    second = session(tiny_folder, adapted=False)
    second.load_state(tmp_path / "state").result()
    train(second, range(3, 6))
    pairs = zip(straight.parameters, second.parameters, strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_published_weights_are_loadable_and_named_by_number(
    tiny_folder: Path, tmp_path: Path
) -> None:
    opened = session(tiny_folder)
    version = opened.publish(tmp_path, 12).result()
    again = opened.publish(tmp_path, 12).result()
    assert (version.name, version.adapter) == ("v0012", tmp_path / "v0012")
    assert version.sha256 == again.sha256
    other = LocalSession(ModelSpec(tiny_folder, LoraSpec(rank=4), initial_adapter=version.adapter))
    pairs = zip(opened.parameters, other.parameters, strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


class Memory:
    """Stands before the network; has room for so many tokens at a time."""

    fits = 1000

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._forward = forward_tree
        monkeypatch.setattr(passes, "forward_tree", self)

    def __call__(self, model: Llama, ids: Tensor, *rest: Any, **options: Any) -> Tensor:
        if len(ids) > self.fits:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return self._forward(model, ids, *rest, **options)


def test_where_memory_runs_out_the_micro_batch_is_halved_and_the_gradient_is_the_same(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, spec = make_step(), ObjectiveSpec(lambda_env=0.5)
    memory = Memory(monkeypatch)
    plenty, small = session(tiny_folder, budget=160), session(tiny_folder, budget=160)
    # What was there before the pass stays there.
    for opened in (plenty, small):
        pass_over(opened, rows[:3], spec)
    assert pass_over(plenty, rows, spec).halvings == 0
    memory.fits = 40
    assert pass_over(small, rows, spec).halvings == 2
    assert relative(gradient(small), gradient(plenty)) < 1e-5
    # It keeps to what fits.
    assert pass_over(small, rows, spec).halvings == 0


def test_memory_that_no_halving_helps_is_a_failure(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = session(tiny_folder)
    Memory(monkeypatch).fits = 0
    with pytest.raises(RuntimeError, match="can't allocate"):
        pass_over(small, make_step(), ObjectiveSpec())
