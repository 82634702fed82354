"""Whether the weights that sample are the weights that are trained.

A server can serve another base under the right name, leave an adapter out, or compute in another
precision; the policy gradient is then taken at probabilities that nobody had, and nothing fails.
So a job that samples on a vLLM server compares the log-probs of one sample before it begins, and
each step's rows are compared before they move a weight.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.backends.base import JobSession
from training.errors import ConfigurationError, MismatchError
from training.manifest import Manifest, SamplerPart
from training.tokenizer import ChatTokenizer
from training.types import Row, RowStatus, TokenKind
from training.vllm import VllmServer

KEY_VARIABLE = "SWITCHBACK_VLLM_API_KEY"
PROMPT = "The first ten whole numbers, in words: one, two,"
TOKENS = 24


def server_of(part: SamplerPart) -> VllmServer:
    """The server that a manifest names; its key comes by the environment alone."""
    return VllmServer(part.base_url, api_key=os.environ.get(KEY_VARIABLE, ""))


def check_server(manifest: Manifest, session: JobSession) -> dict[str, Any]:
    """Sample a little from the base and compare; the session must stand where the base does.

    Raises ConfigurationError where the server has no such model, MismatchError where it is another
    one, and SamplerError where it does not answer.
    """
    part = manifest.sampler
    server = server_of(part)
    name = part.model or manifest.model.name
    served = server.served()
    if name not in served:
        raise ConfigurationError(
            f"manifest.sampler.model: {part.base_url} does not serve {name!r}; it has "
            f"{', '.join(served) or 'nothing'}"
        )
    ids = ChatTokenizer.from_folder(Path(manifest.model.folder)).encode(PROMPT)
    sampled = server.complete(ids, model=name, max_tokens=TOKENS, seed=0)
    row = Row(
        rollout="check",
        group="check",
        reward=None,
        status=RowStatus.OK,
        ids=(*ids, *sampled.ids),
        kinds=(TokenKind.CONTEXT,) * len(ids) + (TokenKind.ACTION,) * len(sampled.ids),
        logprobs=None,
    )
    [trained] = session.forward([row], temperature=1.0).result()
    ratios = [
        mine - theirs
        for mine, theirs in zip(trained[len(ids) - 1 :], sampled.logprobs, strict=True)
    ]
    found = root_mean_square(ratios)
    if 0.0 < part.max_mismatch < found:
        raise MismatchError(
            f"{part.base_url} serves other weights as {name!r} than {manifest.model.folder}: the "
            f"log-probs of {len(ratios)} tokens differ by {found:.3g}, more than "
            f"{part.max_mismatch:g} (sampler.max_mismatch)"
        )
    return {"base_url": part.base_url, "model": name, "tokens": len(ratios), "mismatch": found}


def check_rows(part: SamplerPart, rows: Sequence[Row], log_ratios: Sequence[float]) -> None:
    """Refuse a step whose rows were sampled from other weights than those that are trained.

    `log_ratios`: of the first pass over them, where every difference is the sampler's; rows that
    were scored by the trainer beforehand tell it themselves. Rows of older weights are meant to
    differ, so a step with some is not judged. Raises MismatchError.
    """
    versions = {row.weight_version for row in rows}
    found = root_mean_square(_of_scored(rows) or log_ratios)
    if len(versions) == 1 and 0.0 < part.max_mismatch < found:
        raise MismatchError(
            f"Tokens were sampled as {versions.pop() or 'the base'} with other "
            f"log-probs than the trainer's: they differ by {found:.3g}, more than "
            f"{part.max_mismatch:g} (sampler.max_mismatch). The sampler has other weights, leaves "
            "the adapter out, or is too coarse"
        )


def _of_scored(rows: Sequence[Row]) -> list[float]:
    return [
        trained - sampled
        for row in rows
        if row.trainer_logprobs is not None and row.logprobs is not None
        for kind, trained, sampled in zip(
            row.kinds, row.trainer_logprobs, row.logprobs, strict=True
        )
        if kind is TokenKind.ACTION
    ]


def root_mean_square(values: Sequence[float]) -> float:
    """0 of none."""
    return math.sqrt(math.fsum(v * v for v in values) / len(values)) if values else 0.0
