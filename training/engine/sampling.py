"""From logits to tokens and their log-probabilities.

Log-probabilities are those of the full vocabulary in fp32, once at temperature 1 and once at the
sampling temperature; there is no top-p or top-k, because a truncated distribution would make the
recorded numbers wrong for training (`reference/training.md` section 8). Each row draws one
uniform number per token from its own generator and inverts the cumulative distribution, so what a
row draws does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draw:
    """One token of one row."""

    token: int
    logprob: float
    "at temperature 1, nats"
    sampling_logprob: float
    "at the sampling temperature; 0 where it is 0, since the greedy choice is certain"
    is_finite: bool
    "false if the logits held NaN or infinity: the token means nothing"


def draw(
    logits_R_V: Tensor, temperatures: Sequence[float], uniforms: Sequence[float]
) -> list[Draw]:
    """One token per row. `uniforms` in [0, 1); not used where the temperature is 0."""
    temperature_R = torch.tensor(temperatures, dtype=torch.float32)
    tokens_R = torch.empty(len(temperatures), dtype=torch.int64)
    sampling_R = torch.zeros(len(temperatures))
    greedy = temperature_R == 0
    if bool(greedy.any()):
        tokens_R[greedy] = logits_R_V[greedy].argmax(dim=-1)
    sampled = ~greedy
    if bool(sampled.any()):
        # Indexing by a mask and dividing each copy 200 kB a row; skipped where they change nothing.
        scaled = logits_R_V if bool(sampled.all()) else logits_R_V[sampled]
        if bool((temperature_R[sampled] != 1).any()):
            scaled = scaled / temperature_R[sampled, None]
        uniform = torch.tensor(uniforms, dtype=torch.float32)[sampled, None]
        chances = scaled.softmax(dim=-1)
        cumulative = chances.cumsum(dim=-1)
        # right=True never chooses a token of probability 0; the clamp guards a product rounded up.
        chosen = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
        chosen = chosen.clamp_(max=chances.shape[-1] - 1)
        tokens_R[sampled] = chosen[:, 0]
        sampling_R[sampled] = chances.gather(1, chosen)[:, 0].log()
    if bool((temperature_R == 1).all()):
        logprob_R = sampling_R
    else:
        logprob_R = logits_R_V.gather(1, tokens_R[:, None])[:, 0] - logits_R_V.logsumexp(dim=-1)
    finite_R = logprob_R.isfinite()
    return [
        Draw(*values)
        for values in zip(
            tokens_R.tolist(),
            logprob_R.tolist(),
            sampling_R.tolist(),
            finite_R.tolist(),
            strict=True,
        )
    ]
