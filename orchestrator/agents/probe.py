"""Whether a model endpoint answers: one short completion, or what a Tinker server says it has."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx

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


def probe_tinker(base_url: str, model: str, api_key: str) -> ProbeResult:
    """Asks which models are there; what its losses compute is measured before each training."""
    headers = {"X-API-Key": api_key or "tml-local"}
    try:
        answer = httpx.get(
            f"{base_url}/api/v1/get_server_capabilities",
            headers=headers,
            timeout=PROBE_S,
            trust_env=False,
        )
        found = answer.json() if answer.status_code == 200 else {}
        served = [str(each["model_name"]) for each in found.get("supported_models", [])]
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as exc:
        return ProbeResult(
            False, f"{base_url} gave no answer of Tinker’s protocol ({type(exc).__name__})."
        )
    if answer.status_code != 200:
        return ProbeResult(
            False,
            f"{base_url} answered HTTP {answer.status_code}: {answer.text[:200]}",
        )
    if model not in served:
        names = ", ".join(served[:20]) or "none"
        return ProbeResult(False, f"{base_url} does not train {model!r:.80}; it has {names}.")
    return ProbeResult(True, f"{base_url} trains {model}.")


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
