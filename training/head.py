"""Log-probs of chosen tokens from hidden states, without a table of logits.

Only targets with a weight are evaluated, in chunks. A chunk's logits live until its own gradient is
known and are then freed, so the memory of the loss does not grow with the sequence. Two ways:

- `chunked_logprobs`: a differentiable function; the backward pass recomputes the logits of a chunk.
- `HeadGradient`: forward and backward of a chunk at once (`training.passes`). All losses are sums
  over tokens, so the slope at a log-prob is known before the next chunk: nothing is recomputed.

The arithmetic is fp32 or better even where weights are bf16. Axes: N selected positions, H hidden,
V vocabulary. The head is often tied to the embedding; its gradient is computed only where it is
trained, and summed in fp32 whatever the weights are (training.md 8 of the reference).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Slope = Callable[[Tensor, slice], Tensor]
"""Log-probs of a chunk, and which part of the selection it is, to the loss's derivative by them."""

DEFAULT_CHUNK = 128


class TokenLogProb(torch.autograd.Function):
    """log softmax(logits / temperature) at the targets; keeps one table for the gradient."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor, temperature: float) -> Tensor:
        scaled_NV = logits_NV if temperature == 1.0 else logits_NV / temperature
        lse_N = torch.logsumexp(scaled_NV, dim=-1)
        chosen_N = scaled_NV.gather(-1, targets_N[:, None])[:, 0]
        ctx.save_for_backward(scaled_NV, lse_N, targets_N)
        ctx.temperature = temperature
        return chosen_N - lse_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        scaled_NV, lse_N, targets_N = ctx.saved_tensors
        return _logits_gradient(scaled_NV, lse_N, targets_N, grads[0], ctx.temperature), None, None


def token_logprobs(logits_NV: Tensor, targets_N: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probs of `targets_N` at `temperature`; differentiable in the logits."""
    # torch leaves Function.apply untyped.
    result: Tensor = TokenLogProb.apply(logits_NV, targets_N, temperature)  # type: ignore[no-untyped-call]
    return result


def _logits_gradient(
    scaled_NV: Tensor, lse_N: Tensor, targets_N: Tensor, grad_N: Tensor, temperature: float
) -> Tensor:
    """Derivative of sum(grad * logprob) by the logits: grad / T * (one-hot - softmax)."""
    scale_N = grad_N / temperature
    grad_NV = torch.exp(scaled_NV - lse_N[:, None])
    grad_NV.mul_(-scale_N[:, None])
    grad_NV.scatter_add_(-1, targets_N[:, None], scale_N[:, None])
    return grad_NV


class _ChunkedLogProb(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        targets_N: Tensor,
        temperature: float,
        chunk: int,
    ) -> Tensor:
        ctx.save_for_backward(hidden_NH, weight_VH, targets_N)
        ctx.temperature = temperature
        ctx.chunk = chunk
        parts = [
            token_logprobs(logits(hidden_NH[piece], weight_VH), targets_N[piece], temperature)
            for piece in pieces(hidden_NH.shape[0], chunk)
        ]
        return torch.cat(parts) if parts else logits(hidden_NH, weight_VH).sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden_NH, weight_VH, targets_N = ctx.saved_tensors
        grad_hidden_NH = torch.zeros_like(hidden_NH) if ctx.needs_input_grad[0] else None
        # The head's own gradient is summed in fp32 whatever the weights are (training.md 8).
        grad_weight_VH = (
            torch.zeros(weight_VH.shape, dtype=_accurate(weight_VH.dtype), device=weight_VH.device)
            if ctx.needs_input_grad[1]
            else None
        )
        for piece in pieces(hidden_NH.shape[0], ctx.chunk):
            scaled_NV = logits(hidden_NH[piece], weight_VH)
            if ctx.temperature != 1.0:
                scaled_NV = scaled_NV / ctx.temperature
            lse_N = torch.logsumexp(scaled_NV, dim=-1)
            grad_NV = _logits_gradient(
                scaled_NV, lse_N, targets_N[piece], grads[0][piece], ctx.temperature
            )
            if grad_hidden_NH is not None:
                grad_hidden_NH[piece] = grad_NV.to(weight_VH.dtype) @ weight_VH
            if grad_weight_VH is not None:
                grad_weight_VH += grad_NV.T @ hidden_NH[piece].to(grad_NV.dtype)
        if grad_weight_VH is not None:
            grad_weight_VH = grad_weight_VH.to(weight_VH.dtype)
        return grad_hidden_NH, grad_weight_VH, None, None, None


def chunked_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    targets_N: Tensor,
    *,
    temperature: float = 1.0,
    chunk: int = DEFAULT_CHUNK,
) -> Tensor:
    """Log-probs of `targets_N` under the head `weight_VH`; the backward pass recomputes logits.

    The result does not depend on `chunk` beyond rounding. No positions give an empty tensor that
    still belongs to the graph.
    """
    result: Tensor = _ChunkedLogProb.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, targets_N, temperature, chunk
    )
    return result


class HeadGradient:
    """The head of one pass: log-probs, what the loss makes of them, and the gradients of both.

    Call `add` per selection and `finish` once at the end. Gradient for the head's own weight is
    collected when it is trained, and handed to `.grad` by `finish`.
    """

    def __init__(self, weight_VH: Tensor, *, chunk: int = DEFAULT_CHUNK) -> None:
        self._parameter = weight_VH
        self._weight_VH = weight_VH.detach()
        self._chunk = chunk
        self._grad_VH: Tensor | None = None
        # In the precision of the weights `.grad` itself can be the sum: no second table.
        self._adds_in_place = weight_VH.dtype == _accurate(weight_VH.dtype)

    @torch.no_grad()
    def add(
        self,
        hidden_NH: Tensor,
        grad_NH: Tensor,
        flat_M: Tensor,
        targets_M: Tensor,
        slope: Slope,
        *,
        temperature: float = 1.0,
        entropies: list[float] | None = None,
    ) -> None:
        """Adds to `grad_NH` the gradient of the positions `flat_M` that predict `targets_M`.

        `entropies` takes the entropy of each position over the whole vocabulary, if given.
        """
        for piece in pieces(len(flat_M), self._chunk):
            leaf_CH = hidden_NH[flat_M[piece]]
            table_CV = logits(leaf_CH, self._weight_VH)
            if temperature != 1.0:
                table_CV.div_(temperature)
            # In place as far as it goes: the table is the memory of the loss.
            table_CV.sub_(table_CV.amax(-1, keepdim=True))
            wanted_C = targets_M[piece, None]
            chosen_C = table_CV.gather(-1, wanted_C)[:, 0]
            if entropies is None:
                p_CV = table_CV.exp_()
                total_C = p_CV.sum(-1)
            else:
                p_CV = torch.exp(table_CV)
                total_C = p_CV.sum(-1)
                mean_C = torch.bmm(p_CV[:, None], table_CV[:, :, None])[:, 0, 0] / total_C
                entropies += (total_C.log() - mean_C).tolist()
            # Derivative of sum(slope * logprob): slope / T * (one-hot - softmax).
            scale_C = slope(chosen_C - total_C.log(), piece) / temperature
            p_CV.mul_(-(scale_C / total_C)[:, None]).scatter_add_(-1, wanted_C, scale_C[:, None])
            narrow_CV = p_CV.to(self._weight_VH.dtype)
            grad_NH.index_add_(0, flat_M[piece], narrow_CV @ self._weight_VH)
            if self._parameter.requires_grad:
                self._sum().addmm_(p_CV.T, leaf_CH.to(p_CV.dtype))
            # Else they would live on beside the next chunk's.
            del table_CV, p_CV, narrow_CV

    def finish(self) -> None:
        """Adds the collected gradient of the weight to its `.grad`."""
        if self._grad_VH is None:
            return
        grad_VH = self._grad_VH.to(self._parameter.dtype)
        if self._parameter.grad is None:
            self._parameter.grad = grad_VH
        else:
            self._parameter.grad += grad_VH
        self._grad_VH = None

    def _sum(self) -> Tensor:
        weight_VH = self._parameter
        if self._adds_in_place:
            if weight_VH.grad is None:
                weight_VH.grad = torch.zeros_like(weight_VH)
            return weight_VH.grad
        if self._grad_VH is None:
            self._grad_VH = torch.zeros(
                weight_VH.shape, dtype=_accurate(weight_VH.dtype), device=weight_VH.device
            )
        return self._grad_VH


def chunked_entropy(
    hidden_NH: Tensor, weight_VH: Tensor, *, temperature: float = 1.0, chunk: int = DEFAULT_CHUNK
) -> Tensor:
    """Exact entropy in nats at each position over the whole vocabulary; no gradient."""
    parts = [
        entropy(logits(hidden_NH[piece].detach(), weight_VH.detach()), temperature)
        for piece in pieces(hidden_NH.shape[0], chunk)
    ]
    return torch.cat(parts) if parts else hidden_NH.new_zeros(0)


def entropy(logits_NV: Tensor, temperature: float = 1.0) -> Tensor:
    """-sum p log p of each row at `temperature`; no gradient."""
    with torch.no_grad():
        p_NV = torch.softmax(logits_NV / temperature, dim=-1)
        return -torch.xlogy(p_NV, p_NV).sum(-1)


def logits(hidden_NH: Tensor, weight_VH: Tensor) -> Tensor:
    """Head product, in fp32 or better."""
    if hidden_NH.is_cuda and hidden_NH.dtype in (torch.bfloat16, torch.float16):
        # Summed in fp32 and not rounded to half precision on the way out.
        return torch.mm(hidden_NH, weight_VH.T, out_dtype=torch.float32)
    product = hidden_NH @ weight_VH.T
    return product.to(_accurate(product.dtype))


def pieces(count: int, chunk: int) -> list[slice]:
    """Slices of at most `chunk` that cover `count`."""
    return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]


def _accurate(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
