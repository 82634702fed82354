"""How many episodes at a time a server of foreign code takes.

No route of OpenEnv tells it. By convention apps read `MAX_CONCURRENT_ENVS`; many do not, and take
one. So it is measured when a source is registered: sessions are opened until one is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from orchestrator.environments.connection import Address, EpisodeConnection, Refused
from orchestrator.environments.errors import Cause, EpisodeError, SourceError
from orchestrator.environments.resources import DEFAULT_SLOTS, Resources

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEASURED_AT_MOST = 64
_TIMEOUT_S = 30.0


def slots_asked(resources: Resources) -> int:
    """What is asked for by `MAX_CONCURRENT_ENVS`."""
    return resources.slots or DEFAULT_SLOTS


def capacity_of(source: Mapping[str, Any], asked: int) -> int:
    """Episodes at a time; `source["capacity"]` is `{"asked", "measured"}` of the registration.

    A server that gave what was asked for follows the variable; one that gave less has its own mind.
    Unknown: one, which every server takes.
    """
    known = source.get("capacity") or {}
    measured = int(known.get("measured") or 1)
    if measured >= int(known.get("asked") or 2):
        return asked
    return min(asked, measured)


async def measure_capacity(base_url: str, asked: int) -> int:
    """Sessions that the server takes at a time, at most `asked` and 64."""
    address = Address(base_url)
    async with AsyncExitStack() as stack:
        for taken in range(min(asked, _MEASURED_AT_MOST)):
            try:
                connection = await EpisodeConnection.open(
                    address, timeout_s=_TIMEOUT_S, max_bytes=2**24
                )
                stack.push_async_callback(connection.close)
                await connection.ask(
                    json.dumps({"type": "state"}),
                    timeout_s=_TIMEOUT_S,
                    timeout_cause=Cause.RESET_TIMEOUT,
                )
            except Refused as exc:
                # Any other refusal comes from an environment that was made: it had a slot.
                if exc.code in ("CAPACITY_REACHED", "FACTORY_ERROR"):
                    return max(1, taken)
            except EpisodeError:
                return max(1, taken)
    return max(1, min(asked, _MEASURED_AT_MOST))


def check_env(source: Mapping[str, Any]) -> None:
    """`SourceError` for variables that no process could get."""
    env = source.get("env") or {}
    if not isinstance(env, Mapping):
        raise SourceError('env: an object like {"NAME": "value"} was expected')
    for name, value in env.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SourceError(f"env: {name!r:.60} is not a variable's name")
        if not isinstance(value, str | int | float) or "\0" in str(value):
            raise SourceError(f"env: {name}: a text was expected")
