"""An MCP environment: a fast and a slow tool, tool limit 1 s; the target `fault_mcp_env`."""

from __future__ import annotations

import time
from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server import (
    CallToolAction,
    CallToolObservation,
    MCPEnvironment,
    Observation,
    State,
    create_app,
    mcp_environment,
)

mcp_environment.MCP_TOOL_CALL_TIMEOUT = 1.0


class FaultMCPEnvironment(MCPEnvironment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("fault")

        @server.tool
        def fast() -> str:
            return "ok"

        @server.tool
        def slow(secs: float) -> str:
            time.sleep(secs)  # noqa: TID251 (the fault)
            return "slept"

        super().__init__(server)
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        self._state = State(episode_id=episode_id)
        return Observation(reward=0.0)

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return self._state


app = create_app(
    FaultMCPEnvironment,
    CallToolAction,
    CallToolObservation,
    env_name="fault_mcp",
    max_concurrent_envs=8,
)
