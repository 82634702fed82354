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


class Chooser:
    """Draws tokens; keeps its large intermediate results between steps.

    Fresh memory of that size comes page by page from the kernel, which costs more than the sums.
    """

    def __init__(self) -> None:
        self._scratch = torch.empty(2, 0, 0)

    def _space(self, rows: int, vocabulary: int) -> tuple[Tensor, Tensor]:
        """Two arrays `[rows, vocabulary]` of unspecified content."""
        if self._scratch.shape[1] < rows or self._scratch.shape[2] != vocabulary:
            self._scratch = torch.empty(2, rows, vocabulary)
        return self._scratch[0, :rows], self._scratch[1, :rows]

    def draw(
        self, logits_R_V: Tensor, temperatures: Sequence[float], uniforms: Sequence[float]
    ) -> list[Draw]:
        """One token per row. `uniforms` in [0, 1); not used where the temperature is 0."""
        temperature_R = torch.tensor(temperatures, dtype=torch.float32)
        greedy = temperature_R == 0
        chances, other = self._space(*logits_R_V.shape)
        torch.softmax(logits_R_V, dim=-1, out=chances)
        highest_R, best_R = logits_R_V.max(dim=-1)
        # The normaliser at temperature 1, from the one chance that cannot underflow.
        total_R = highest_R - chances.gather(1, best_R[:, None])[:, 0].log()
        if bool(greedy.all()):
            tokens_R, sampling_R = best_R, torch.zeros(len(temperatures))
        else:
            if bool((temperature_R != 1).any()):
                divisor = torch.where(greedy, 1.0, temperature_R)[:, None]
                torch.softmax(torch.div(logits_R_V, divisor, out=other), dim=-1, out=chances)
            cumulative = torch.cumsum(chances, dim=-1, out=other)
            uniform = torch.tensor(uniforms, dtype=torch.float32)[:, None]
            # right=True never chooses a chance of 0; the clamp guards a product rounded up.
            chosen = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
            chosen = chosen.clamp_(max=chances.shape[-1] - 1)
            sampling_R = chances.gather(1, chosen)[:, 0].log().masked_fill_(greedy, 0.0)
            tokens_R = torch.where(greedy, best_R, chosen[:, 0])
        logprob_R = logits_R_V.gather(1, tokens_R[:, None])[:, 0] - total_R
        finite_R = logprob_R.isfinite() & sampling_R.isfinite()
        columns = (tokens_R, logprob_R, sampling_R, finite_R)
        return [Draw(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]
