"""Whether a server serves episodes: only a reset proves it, `/health` does not (openenv 0.10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.environments.errors import Cause, EpisodeError, ServerStartError
from orchestrator.environments.session import EpisodeSession, EpisodeSettings


async def until_ready(
    base_url: str, probe: Mapping[str, Any], timeout_s: float, is_alive: Callable[[], bool]
) -> None:
    """Until an episode was reset. A server that is full is ready as well."""
    settings = EpisodeSettings(connect_timeout_s=2, reset_timeout_s=timeout_s, slot_wait_s=0)
    last = "it did not listen"
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if not is_alive():
                    raise ServerStartError("its process ended.")
                try:
                    async with EpisodeSession.open(base_url, settings) as session:
                        await session.reset(**probe)
                    return
                except EpisodeError as exc:
                    if exc.cause is Cause.NO_CAPACITY:
                        return
                    last = exc.message
                    if exc.cause not in (Cause.ENV_UNREACHABLE, Cause.SERVER_LOST):
                        raise ServerStartError(last) from exc
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise ServerStartError(f"not ready within {timeout_s:g} s ({last}).") from None
