"""Attention over a tree: equal to plain attention with a mask, values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from training import tree
from training.fused import fused_tree_attention
from training.tree import TreeLayout, tree_attention


def draw(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def masked(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Dense attention; `allowed[i, j]` lets query i see key j."""
    groups = q.shape[1] // k.shape[1]
    scores = torch.einsum("nhd,mhd->hnm", q, k.repeat_interleave(groups, 1)) / math.sqrt(
        q.shape[-1]
    )
    p = torch.softmax(scores.masked_fill(~allowed, -math.inf), dim=-1)
    return torch.einsum("hnm,mhd->nhd", p, v.repeat_interleave(groups, 1))


@pytest.mark.parametrize("root", [0, 5])
@pytest.mark.parametrize(
    ("prefix", "suffixes"), [(0, [4]), (7, []), (3, [1, 4, 2]), (0, [2, 0, 3]), (7, [3])]
)
def test_values_and_gradients_equal_masked_attention(
    root: int, prefix: int, suffixes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "BLOCK", 3)
    n = prefix + sum(suffixes)
    q, k, v = draw(n, 4, 6, seed=1), draw(n, 2, 6, seed=2), draw(n, 2, 6, seed=3)
    past = [(draw(root, 2, 6, seed=4), draw(root, 2, 6, seed=5))] if root else None
    layout = TreeLayout.build(prefix=prefix, suffixes=suffixes, past=past)

    allowed = torch.zeros(n, root + n, dtype=torch.bool)
    allowed[:, : root + prefix] = True
    allowed[:prefix, root : root + prefix] = torch.ones(prefix, prefix).tril().bool()
    start = prefix
    for length in suffixes:
        own = slice(start, start + length)
        allowed[own, root + start : root + start + length] = (
            torch.ones(length, length).tril().bool()
        )
        start += length
    keys, values = past[0] if past else (k.new_zeros(0, 2, 6), v.new_zeros(0, 2, 6))
    expected = masked(q, torch.cat([keys, k]), torch.cat([values, v]), allowed)
    found = tree_attention(q, k, v, layout, 0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)

    leaves = [q, k, v, *([keys, values] if past else [])]
    weights = draw(n, 4, 6, seed=6).detach()
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_positions_continue_from_the_root() -> None:
    past = [(torch.zeros(5, 1, 2), torch.zeros(5, 1, 2))]
    layout = TreeLayout.build(prefix=2, suffixes=[1, 3], past=past)
    assert layout.positions_N.tolist() == [5, 6, 7, 7, 8, 9]


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.parametrize("form", ["flex", "dense"])
@pytest.mark.parametrize("root", [0, 5])
@pytest.mark.parametrize(("prefix", "suffixes"), [(7, []), (3, [1, 4, 2]), (0, [2, 0, 3])])
def test_the_fused_form_for_cuda_equals_the_one_for_a_cpu(
    root: int, prefix: int, suffixes: list[int], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "BLOCK", 3)
    n = prefix + sum(suffixes)
    q, k, v = draw(n, 4, 8, seed=1), draw(n, 2, 8, seed=2), draw(n, 2, 8, seed=3)
    past = (draw(root, 2, 8, seed=4), draw(root, 2, 8, seed=5)) if root else None
    layout = TreeLayout.build(prefix=prefix, suffixes=suffixes, past=past and [past])
    expected = tree_attention(q, k, v, layout, 0)
    if form == "flex":  # has no backward pass on a CPU
        q, k, v = q.detach(), k.detach(), v.detach()
        past = past and (past[0].detach(), past[1].detach())
    found = fused_tree_attention(q, k, v, past, layout, form=form)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    if form == "flex":
        return
    leaves = [q, k, v, *(past or ())]
    for one, other in zip(
        torch.autograd.grad((found * found).sum(), leaves),
        torch.autograd.grad((expected * expected).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
