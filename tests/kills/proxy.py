"""A line between the product and a service that can be cut, or go silent, and come back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any


class Proxy:
    """Listens on a port of 127.0.0.1; `connect` opens the other side for each connection."""

    def __init__(self, port: int, connect: Callable[[], Any]) -> None:
        self.port = port
        self._connect = connect
        self._pairs: set[asyncio.StreamWriter] = set()
        self._may_pass: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        threading.Thread(target=self._run, name=f"proxy-{port}", daemon=True).start()
        self._is_up.wait(30)

    def cut(self) -> None:
        """Ends all connections at once; new ones are taken."""
        self._loop.call_soon_threadsafe(self._cut)

    def silence(self, *, is_silent: bool) -> None:
        """Nothing passes while it is silent; connections stay open."""
        assert self._may_pass is not None
        change = self._may_pass.clear if is_silent else self._may_pass.set
        self._loop.call_soon_threadsafe(change)

    def _cut(self) -> None:
        for writer in list(self._pairs):
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        server = await asyncio.start_server(self._handle, "127.0.0.1", self.port)
        self._is_up.set()
        async with server:
            await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self._pairs |= {writer, far_writer}
        there = asyncio.create_task(self._pass(reader, far_writer))
        back = asyncio.create_task(self._pass(far_reader, writer))
        await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        for task in (there, back):
            task.cancel()
        for side in (writer, far_writer):
            self._pairs.discard(side)
            side.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._may_pass is not None
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._may_pass.wait()
                writer.write(data)
                await writer.drain()
