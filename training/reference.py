"""Rows scored before a step: by the policy as it stands, and by the reference policy.

The reference of an adapter is its base model: the same network with the adapters switched off, so
no second copy is loaded. Where every weight is trained there is no such copy, and rows must bring
`reference_logprobs` of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from training.errors import ConfigurationError
from training.llama import Llama
from training.lora import LoraLinear
from training.types import MismatchCorrection, ObjectiveSpec, Row

Score = Callable[[Sequence[Row]], list[list[float]]]
"""Log-probs of every target of each row at the policy's temperature."""


def with_needed_scores(
    model: Llama, rows: Sequence[Row], spec: ObjectiveSpec, score: Score
) -> list[Row]:
    """The rows with what `spec` asks for beside the sampler's log-probs; a forward pass for each.

    Raises ConfigurationError where a reference is asked for and there is none.
    """
    scored = list(rows)
    if spec.kl_coef != 0.0 and any(row.reference_logprobs is None for row in rows):
        with _adapters_off(model):
            values = _by_token(score(rows))
        scored = [
            row if row.reference_logprobs is not None else replace(row, reference_logprobs=lps)
            for row, lps in zip(scored, values, strict=True)
        ]
    if spec.mismatch is not MismatchCorrection.NONE:
        values = _by_token(score(rows))
        scored = [
            replace(row, trainer_logprobs=lps) for row, lps in zip(scored, values, strict=True)
        ]
    return scored


def _by_token(values: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """One per token: the first is nobody's target."""
    return [(0.0, *row) for row in values]


@contextmanager
def _adapters_off(model: Llama) -> Iterator[None]:
    adapters = [module for module in model.modules() if isinstance(module, LoraLinear)]
    if not adapters:
        raise ConfigurationError(
            "kl_coef: where every weight is trained, rows must bring reference_logprobs"
        )
    scales = [adapter.scale for adapter in adapters]
    for adapter in adapters:
        adapter.scale = 0.0
    try:
        yield
    finally:
        for adapter, scale in zip(adapters, scales, strict=True):
            adapter.scale = scale
