"""Environment servers for tests: real processes with real sockets, killed and frozen at will.

`FaultServer` serves `fault_env` or `fault_mcp_env` on a UNIX socket; a server that is started again
has the same address. `raw_server` answers the n-th message of a connection with the n-th prepared
text, unchanged; the text `$close` closes the connection.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from websockets.asyncio.server import ServerConnection, serve

DOUBLES = Path(__file__).parent
# gradio would make each start three times slower.
_RUN = "import sys; sys.modules['gradio'] = None; import uvicorn; uvicorn.main()"


class FaultServer:
    """One server process."""

    def __init__(
        self,
        folder: Path,
        target: str = "fault_env",
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
    ) -> None:
        self.socket = folder / "s.sock"
        self.log = folder / "server.log"
        self._target, self._env, self._args = target, dict(env or {}), list(args)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"unix://{self.socket}"

    def spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _RUN,
                    f"{self._target}:app",
                    *("--app-dir", str(DOUBLES), "--uds", str(self.socket)),
                    *("--log-level", "warning", *self._args),
                ],
                env={"PATH": os.environ["PATH"], **self._env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Until GET /health answers 200."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        async with asyncio.timeout(120), httpx.AsyncClient(transport=transport) as client:
            while True:
                try:
                    if (await client.get("http://localhost/health")).is_success:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
                if self._process is None or self._process.poll() is not None:
                    raise RuntimeError(f"the server died: {self.log.read_text()[-2000:]}")

    async def start(self) -> None:
        self.spawn()
        await self.ready()

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, number)
            if number == signal.SIGKILL:
                self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.send(signal.SIGKILL)


@asynccontextmanager
async def raw_server(replies: Sequence[str]) -> AsyncIterator[str]:
    """Base address of a server that answers with `replies`, connection by connection."""

    async def handle(socket: ServerConnection) -> None:
        position = 0
        async for _ in socket:
            if position >= len(replies) or replies[position] == "$close":
                await socket.close()
                return
            await socket.send(replies[position])
            position += 1

    async with serve(handle, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def silent_port() -> AsyncIterator[int]:
    """A TCP listener that accepts and never answers."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
