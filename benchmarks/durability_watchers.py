"""Many live watchers of one stream, in a process of their own: when each event reached each.

    python -m benchmarks.durability_watchers URL COOKIE N_WATCHERS N_EVENTS

Prints `ready` once all sockets are open; then, at the end, one JSON object: for each watcher the
times (seconds of the wall clock) at which it got sequence 1, 2, 3 …, null where it never did.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence

import websockets

LIMIT_S = 300.0


async def _watch(
    url: str, cookie: str, n_events: int, opened: asyncio.Semaphore, ready: asyncio.Event
) -> list[float | None]:
    arrived: list[float | None] = [None] * n_events
    async with websockets.connect(
        url,
        additional_headers={"Cookie": f"sessionid={cookie}"},
        origin=_origin(url),
        max_size=None,
    ) as socket:
        await socket.send(json.dumps({"after": 0}))
        opened.release()
        await ready.wait()
        try:
            async with asyncio.timeout(LIMIT_S):
                while arrived[-1] is None:
                    frame = json.loads(await socket.recv())
                    now_s = time.time()
                    for event in frame["events"]:
                        if event["seq"] <= n_events and arrived[event["seq"] - 1] is None:
                            arrived[event["seq"] - 1] = now_s
        except TimeoutError:
            pass  # what did not come has no time
    return arrived


def _origin(url: str) -> websockets.Origin:
    return websockets.Origin("http://" + url.split("/")[2])


async def _all(url: str, cookie: str, n: int, n_events: int) -> Sequence[Sequence[float | None]]:
    opened, ready = asyncio.Semaphore(0), asyncio.Event()
    tasks = [asyncio.create_task(_watch(url, cookie, n_events, opened, ready)) for _ in range(n)]
    for _ in range(n):
        waits = asyncio.create_task(opened.acquire())
        done, _ = await asyncio.wait([waits, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waits}:
            task.result()  # refused: the reason
    ready.set()
    print("ready", flush=True)
    return await asyncio.gather(*tasks)


if __name__ == "__main__":
    told = asyncio.run(_all(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    print(json.dumps(told))
