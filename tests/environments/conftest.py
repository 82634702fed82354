"""Shared servers: one process per configuration for the whole session, or one per test."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.environments.sandbox import detect
from tests.doubles.openenv_servers import FaultServer

ServerFactory = Callable[..., FaultServer]

_ISOLATION = detect(environ={})
needs_bubblewrap = pytest.mark.skipif(
    _ISOLATION.mode != "bubblewrap" and os.environ.get("CI") != "true",
    reason=f"{_ISOLATION.reason}. {_ISOLATION.hint}",
)
"""Skips with the reason where isolation does not work; fails there in CI."""


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ServerFactory]:
    """`shared_server(target, **env)`: a server that tests leave as they found it."""
    servers: dict[tuple[object, ...], FaultServer] = {}
    with tempfile.TemporaryDirectory(prefix="switchback-env-") as folder:

        def get(target: str = "fault_env", **env: str) -> FaultServer:
            key = (target, *sorted(env.items()))
            if key not in servers:
                own = Path(folder, str(len(servers)))
                own.mkdir()
                servers[key] = FaultServer(own, target, env)
                servers[key].spawn()
            return servers[key]

        yield get
        for server in servers.values():
            server.stop()


@pytest.fixture
def own_server() -> Iterator[ServerFactory]:
    """`own_server(target, env, args)`: a server for this test, which may kill it."""
    servers: list[FaultServer] = []
    with tempfile.TemporaryDirectory(prefix="switchback-env-") as folder:

        def make(
            target: str = "fault_env",
            env: dict[str, str] | None = None,
            args: list[str] | None = None,
        ) -> FaultServer:
            own = Path(folder, str(len(servers)))
            own.mkdir()
            server = FaultServer(own, target, env, args or [])
            server.spawn()
            servers.append(server)
            return server

        yield make
        for server in servers:
            server.stop()


async def until(condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    """Wait for a condition. `TimeoutError` after the limit."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.01)
