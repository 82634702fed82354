"""The environments of `rollouts`: `python -m benchmarks.rollouts_server KIND PORT SLOTS`.

`plain` echoes a message, as the scaffold of `openenv init` does (some 0.2 ms of processor time a
step); `tools` does the same as an MCP tool (some 2 ms); `slow` is `plain` with steps that take 200
ms and no processor. An episode ends with the message `end`.
"""

from __future__ import annotations

import asyncio
import sys

# gradio would make the start three times slower and is not used.
sys.modules["gradio"] = None  # type: ignore[assignment]

from typing import Any  # noqa: E402

import uvicorn  # noqa: E402
from fastmcp import FastMCP  # noqa: E402
from openenv.core.env_server import (  # noqa: E402
    Action,
    CallToolAction,
    CallToolObservation,
    Environment,
    MCPEnvironment,
    Observation,
    State,
    create_app,
)

END = "end"
SLOW_STEP_S = 0.2


class Message(Action):  # type: ignore[misc]
    message: str


class Echo(Observation):  # type: ignore[misc]
    echoed_message: str = ""
    message_length: int = 0


class PlainEnvironment(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Echo:
        self._state = State(episode_id=episode_id)
        return Echo(echoed_message="ready")

    def step(self, action: Message, timeout_s: float | None = None, **_: Any) -> Echo:
        self._state.step_count += 1
        return Echo(
            echoed_message=action.message,
            message_length=len(action.message),
            reward=min(1.0, 0.1 * len(action.message)),
            done=action.message == END,
        )

    @property
    def state(self) -> State:
        return self._state


class SlowEnvironment(PlainEnvironment):
    async def step_async(self, action: Message, timeout_s: float | None = None, **_: Any) -> Echo:
        await asyncio.sleep(SLOW_STEP_S)
        return self.step(action)


class ToolsEnvironment(MCPEnvironment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("echo")

        @server.tool
        def echo_message(message: str) -> str:
            """Gives the message back."""
            return message

        super().__init__(server)
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **_: Any
    ) -> Observation:
        self._state = State(episode_id=episode_id)
        return Observation()

    def _step_impl(self, action: Any, timeout_s: float | None = None, **_: Any) -> Observation:
        return Observation()

    @property
    def state(self) -> State:
        return self._state


def main(kind: str, port: int, slots: int) -> None:
    if kind in ("plain", "slow"):
        chosen = SlowEnvironment if kind == "slow" else PlainEnvironment
        app = create_app(chosen, Message, Echo, env_name=kind, max_concurrent_envs=slots)
    else:
        app = create_app(
            ToolsEnvironment,
            CallToolAction,
            CallToolObservation,
            env_name="tools",
            max_concurrent_envs=slots,
        )
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
