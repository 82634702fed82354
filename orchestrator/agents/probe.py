"""Whether a model endpoint answers: one short completion, told in words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orchestrator.agents.client import ChatModel, Endpoint, ModelClient
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Sampling

PROBE_S = 15.0
"""A person waits for the form."""


@dataclass(frozen=True)
class ProbeResult:
    is_usable: bool
    message: str


def probe_endpoint(endpoint: Endpoint) -> ProbeResult:
    """Blocks for at most `PROBE_S`."""
    return asyncio.run(_probe(endpoint))


async def _probe(endpoint: Endpoint) -> ProbeResult:
    sampling = Sampling(temperature=0.0, max_tokens=8, stop=())
    try:
        async with ModelClient(endpoint, retry_for_s=PROBE_S) as client:
            said = await ChatModel(client).complete(
                [{"role": "user", "content": "Reply with the word ready."}], sampling, seed=0
            )
    except ModelError as exc:
        return ProbeResult(False, exc.message)
    return ProbeResult(
        True, f"{endpoint.model} answered in {said.latency_s:.1f} s, {said.tokens_out} tokens."
    )
