"""Whether a model takes functions: as a person has said, else found out by one small request.

Endpoints that cannot (a model without a template for them, a server without a parser) refuse the
request; that is the answer. What only shows later, a model that never calls what it is offered,
is seen in its traces: its text is then read instead.
"""

from __future__ import annotations

import asyncio

from orchestrator.agents.client import ChatModel, ModelClient
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Function, Sampling

_PROBE = Function(
    "ready", "Say that you are ready.", {"type": "object", "properties": {}, "required": []}
)


class FunctionSupport:
    """Asked once for all rollouts of a run."""

    def __init__(self, client: ModelClient, flag: bool | None) -> None:
        self._client = client
        self._flag = flag
        self._lock = asyncio.Lock()  # the first rollout asks, the others wait for its answer
        self.learned: bool | None = None
        """What the request has shown; None where nobody had to ask."""

    async def known(self) -> bool:
        """Raises ModelError where the endpoint cannot be asked at all."""
        async with self._lock:
            if self._flag is None:
                self._flag = self.learned = await _probe(self._client)
            return self._flag


async def _probe(client: ModelClient) -> bool:
    try:
        await ChatModel(client).complete(
            [{"role": "user", "content": "Are you ready?"}],
            Sampling(max_tokens=16, stop=()),
            seed=0,
            functions=[_PROBE],
        )
    except ModelError as exc:
        if exc.cause == "model_refused":
            return False
        raise
    return True
