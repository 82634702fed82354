"""Chunked head: equal to the plain computation, for any chunk size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.head import chunked_entropy, chunked_logprobs, pieces, token_logprobs


def naive(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> Tensor:
    table = torch.log_softmax(hidden @ weight.T / temperature, dim=-1)
    return table.gather(-1, targets[:, None])[:, 0]


def sample(rows: int = 7, hidden: int = 5, vocabulary: int = 11) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return (
        torch.randn(rows, hidden, dtype=torch.float64, generator=generator),
        torch.randn(vocabulary, hidden, dtype=torch.float64, generator=generator),
        torch.randint(vocabulary, (rows,), generator=generator),
    )


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_equal_the_naive_form(chunk: int, temperature: float) -> None:
    hidden, weight, targets = sample()
    coefficients = torch.linspace(-1, 1, len(targets), dtype=torch.float64)
    results = []
    for is_chunked in (True, False):
        h = hidden.clone().requires_grad_()
        w = weight.clone().requires_grad_()
        if is_chunked:
            lp = chunked_logprobs(h, w, targets, temperature=temperature, chunk=chunk)
        else:
            lp = naive(h, w, targets, temperature)
        (lp * coefficients).sum().backward()  # type: ignore[no-untyped-call]
        assert h.grad is not None
        assert w.grad is not None
        results.append((lp.detach(), h.grad, w.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_the_gradient_is_the_derivative() -> None:
    hidden, weight, targets = sample(rows=3)
    hidden.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h: chunked_logprobs(h, weight, targets, temperature=0.8, chunk=2), (hidden,)
    )
    logits = (hidden.detach() @ weight.T).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_logprobs(x, targets, 0.8), (logits,))


def test_no_positions_still_belong_to_the_graph() -> None:
    hidden, weight, targets = sample(rows=0)
    hidden.requires_grad_()
    chunked_logprobs(hidden, weight, targets).sum().backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None


def test_an_impossible_token_elsewhere_does_no_harm() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0]], requires_grad=True)
    token_logprobs(logits, torch.tensor([2])).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_entropy_is_that_of_the_distribution() -> None:
    hidden, weight, _ = sample()
    log_p = torch.log_softmax(hidden @ weight.T, dim=-1)
    expected = -(log_p.exp() * log_p).sum(-1)
    torch.testing.assert_close(chunked_entropy(hidden, weight, chunk=2), expected)


def test_pieces_cover_everything_once() -> None:
    assert [list(range(7))[p] for p in pieces(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
