"""Tools of an MCP server, one session for each episode.

A command is started for the episode, in a folder of its own with the author's files, and ends with
it: so nothing that a server remembers passes from one episode to another. A server by its address
gets a new session; what it remembers beyond that is its own affair.

All sessions live in one event loop in a thread of its own. What goes wrong with a call is its
outcome, never an exception: a server that has died answers every further call with
`transport_error`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import McpError

from orchestrator.environments.tools.outcome import Outcome, ToolInfo, failed, of_text
from orchestrator.environments.tools.tasks import ToolSource

START_S = 30.0
"""For a server to start and to list its tools; importing fastmcp alone takes 2 s on a busy core."""
CLOSE_S = 5.0
METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602

T = TypeVar("T")


class Loop:
    """An event loop in a daemon thread, shared by the sessions of this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="mcp", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """`TimeoutError` after the limit; the work is cancelled then."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError from None


class McpTools:
    """The session of one episode. `RuntimeError` if the server does not start."""

    grade: Callable[..., Any] | None = None

    def __init__(self, source: ToolSource, loop: Loop, environ: Mapping[str, str]) -> None:
        self.state: dict[str, Any] = {}
        self._source = source
        self._loop = loop
        self._folder: Path | None = None
        self._end = asyncio.Event()
        self._ready: asyncio.Future[list[ToolInfo]] | None = None
        self._client = Client(self._transport(environ), init_timeout=START_S)
        try:
            self._tools = loop.run(self._open(), START_S)
        except TimeoutError:
            self.close()
            raise RuntimeError(f"the MCP server did not answer within {START_S:g} s") from None
        except Exception as exc:
            self.close()
            raise RuntimeError(f"the MCP server did not start: {_words(exc)}") from exc

    def tools(self) -> list[ToolInfo]:
        return self._tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """The result or the failure; never raises for what the server does."""
        if name not in {tool.name for tool in self._tools}:
            return failed("tool_not_found", f"there is no tool {name!r:.80}")
        limit_s = self._source.tool_timeout_s
        try:
            result = self._loop.run(
                self._client.call_tool_mcp(name, dict(arguments), timeout=limit_s), limit_s + 1
            )
        except TimeoutError:
            return failed("timeout", f"{name} took longer than {limit_s:g} s")
        except McpError as exc:
            return _refused(name, exc, limit_s)
        except Exception as exc:  # boundary: whatever a foreign server or its transport does
            return failed("transport_error", f"the MCP server cannot be reached: {_words(exc)}")
        texts = [part.text for part in result.content if part.type == "text"]
        if others := len(result.content) - len(texts):
            texts.append(f"({others} parts that are not text)")
        text = "\n".join(texts)
        if result.isError:
            return failed("execution_error", text[:2000] or "the tool failed without saying why")
        return of_text(text, data=result.structuredContent)

    def close(self) -> None:
        """End the session and the command. Safe to call twice."""
        # What does not close in time is killed by its transport when the loop gets to it.
        with contextlib.suppress(TimeoutError):
            self._loop.run(self._close(), CLOSE_S)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _transport(self, environ: Mapping[str, str]) -> StdioTransport | StreamableHttpTransport:
        source = self._source
        if source.url:
            return StreamableHttpTransport(source.url, headers=dict(source.headers))
        self._folder = Path(tempfile.mkdtemp(prefix="mcp-"))
        for name, text in source.files.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        program, *rest = source.command
        if program in ("python", "python3"):
            program = sys.executable
        env = {**environ, **source.env}
        return StdioTransport(program, rest, env=env, cwd=str(self._folder), keep_alive=False)

    async def _open(self) -> list[ToolInfo]:
        self._ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(self._ready))
        return await self._ready

    async def _live(self, ready: asyncio.Future[list[ToolInfo]]) -> None:
        """Opens and closes the session in one task, as its cancel scopes demand."""
        try:
            async with self._client:
                found = await self._client.list_tools()
                offered = self._source.offered
                tools = [
                    ToolInfo(tool.name, tool.description or "", tool.inputSchema)
                    for tool in found
                    if not offered or tool.name in offered
                ]
                if not ready.done():
                    ready.set_result(tools)
                await self._end.wait()
        except Exception as exc:  # boundary: handed to whoever opens
            if not ready.done():
                ready.set_exception(exc)

    async def _close(self) -> None:
        self._end.set()
        if self._ready is not None:
            if not self._ready.done():
                self._task.cancel()
            await asyncio.wait([self._task])


def _refused(name: str, exc: McpError, limit_s: float) -> Outcome:
    code, words = exc.error.code, _words(exc)
    if code == METHOD_NOT_FOUND:
        return failed("tool_not_found", words)
    if code == INVALID_PARAMS:
        return failed("invalid_args", words)
    if code == 408 or "timed out" in words.lower():
        return failed("timeout", f"{name} took longer than {limit_s:g} s")
    if "connection closed" in words.lower():
        return failed("transport_error", f"the MCP server cannot be reached: {words}")
    return failed("execution_error", words)


def _words(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return (str(exc) or type(exc).__name__)[:500]
