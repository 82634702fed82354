"""The bare client of `rollouts`: OpenEnv's own, in a process that does nothing else.

Reads one line of JSON per batch, `{"sessions", "steps", "action"}`, drives that many sessions side
by side through reset, steps and close, and answers `{"wall_s", "cpu_s"}`.
"""

from __future__ import annotations

import sys

# gradio would make the start three times slower and is not used.
sys.modules["gradio"] = None  # type: ignore[assignment]

import asyncio  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

from openenv.core.generic_client import GenericEnvClient  # noqa: E402


async def batch(url: str, sessions: int, steps: int, action: dict[str, Any]) -> None:
    async def one() -> None:
        async with GenericEnvClient(base_url=url) as client:
            await client.reset(seed=1)
            for _ in range(steps):
                await client.step(action)

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(one())


def main(url: str) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        asyncio.run(batch(url, **asked))
        print(
            json.dumps(
                {
                    "wall_s": time.perf_counter() - wall_s,
                    "cpu_s": time.process_time() - cpu_s,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1])
