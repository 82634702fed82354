"""One WebSocket to an OpenEnv server: one episode, one request at a time, never reopened.

OpenEnv's protocol has no request numbers, and its own client replaces a lost connection without a
word, after which answers come from an environment that nobody reset. So this class never
reconnects, holds a lock around each request and its answer, and is dead after any time-out,
cancelled call, transport fault or unusable frame. It checks frames; what an answer means for the
episode is decided by `session`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.protocol import State

from orchestrator.environments.errors import Cause, EpisodeError

CLOSE_TIMEOUT_S = 1.0
LARGE_BYTES = 2**20
"""Frames above this are encoded and decoded in a thread: other episodes share the loop."""
RAW_KEPT_CHARS = 2000


_SECRET: set[str] = set()


def keep_secret(base_url: str) -> None:
    """Never show this address: whoever knows it may use the server."""
    _SECRET.add(base_url)


@dataclass(frozen=True)
class Address:
    """Where a server listens: `http(s)://host:port[/path]`, or `unix:///path/of/socket`."""

    base_url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme == "unix":
            if not parts.path.startswith("/"):
                raise ValueError("a unix address is unix:///absolute/path")
        elif parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an environment's address is http(s)://host:port or unix:///path")

    @property
    def socket_path(self) -> str | None:
        """Path of the UNIX socket; None for a network address."""
        parts = urlsplit(self.base_url)
        return parts.path if parts.scheme == "unix" else None

    @property
    def http_url(self) -> str:
        """Base of the HTTP routes, without a final slash."""
        return "http://localhost" if self.socket_path else self.base_url.rstrip("/")

    @property
    def ws_url(self) -> str:
        return f"ws{self.http_url.removeprefix('http')}/ws"

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.base_url).hostname or ""
        return bool(self.socket_path) or host in ("localhost", "::1") or host.startswith("127.")

    @property
    def shown(self) -> str:
        """For messages: host and port, or the socket; never credentials or a query."""
        if self.base_url in _SECRET:
            return "an address that is not shown"
        if self.socket_path:
            return self.socket_path
        parts = urlsplit(self.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.hostname}:{port}"


class Refused(Exception):
    """An error frame. The connection stays usable if the server keeps it open."""

    def __init__(self, data: Mapping[str, Any], raw: str) -> None:
        self.code = str(data.get("code") or "UNKNOWN")
        self.text = plain(str(data.get("message") or ""))
        errors = data.get("errors")
        self.errors: list[Any] = errors if isinstance(errors, list) else []
        self.data = data
        self.raw = raw
        super().__init__(f"{self.code}: {self.text}")


@dataclass(frozen=True)
class Answer:
    """The checked data of an answer."""

    data: dict[str, Any]
    size_bytes: int
    text: str = field(repr=False)
    """The frame as received."""


class EpisodeConnection:
    """See the module's text. Made by `open`; all methods belong to one event loop."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._lock = asyncio.Lock()  # protects send and receive as one unit
        self._is_dead = False
        self._has_asked = False

    @property
    def is_open(self) -> bool:
        return not self._is_dead and self._socket.state is State.OPEN

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        timeout_s: float,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
    ) -> Self:
        """A connection; says nothing about a free slot. `EpisodeError` (env_unreachable)."""
        options: dict[str, Any] = {
            "open_timeout": timeout_s,
            "close_timeout": CLOSE_TIMEOUT_S,
            "max_size": max_bytes,
            "additional_headers": dict(headers or {}),
            "compression": None,
        }
        try:
            if address.socket_path:
                socket = await unix_connect(address.socket_path, address.ws_url, **options)
            else:
                if address.is_loopback:
                    options["proxy"] = None
                socket = await connect(address.ws_url, **options)
        except (OSError, WebSocketException, TimeoutError, ValueError, EOFError) as exc:
            raise EpisodeError(Cause.ENV_UNREACHABLE, type(exc).__name__) from exc
        return cls(socket)

    async def ask(self, frame: str, *, timeout_s: float, timeout_cause: Cause) -> Answer:
        """Send an encoded message and return its answer.

        `Refused` for an error frame. `EpisodeError` for everything else; then, and after a
        cancelled call, the connection is dead.
        """
        async with self._lock:
            if self._is_dead:
                raise EpisodeError(Cause.SESSION_LOST)
            is_first, self._has_asked = not self._has_asked, True
            try:
                text = await self._exchange(frame, is_first, timeout_s, timeout_cause)
                return await _read(text)
            except Refused:
                raise
            except BaseException:
                # A cancelled call too leaves an answer on its way, which the next would get.
                self._is_dead = True
                raise

    async def _exchange(
        self, frame: str, is_first: bool, timeout_s: float, timeout_cause: Cause
    ) -> str:
        is_sent = False
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    await self._socket.send(frame)
                    is_sent = True
                except ConnectionClosed:
                    # A server without a free slot closes at once; its reason may be waiting.
                    if not is_first:
                        raise
                received = await self._socket.recv()
        except TimeoutError:
            raise EpisodeError(timeout_cause) from None
        except ConnectionClosed as exc:
            if exc.sent is not None and exc.sent.code == 1009 and not exc.rcvd_then_sent:
                raise EpisodeError(Cause.OBSERVATION_TOO_LARGE) from exc
            raise EpisodeError(Cause.SERVER_LOST if is_sent else Cause.SESSION_LOST) from exc
        if isinstance(received, bytes):
            raise EpisodeError(Cause.PROTOCOL_VIOLATION, "a binary frame")
        return received

    def abort(self) -> None:
        """Drop the line without a word, as a killed client does."""
        self._is_dead = True
        self._socket.transport.abort()

    async def close(self) -> None:
        """End it, politely for at most a second, then at once. Safe to call twice."""
        self._is_dead = True
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._socket.close()
        except (TimeoutError, OSError, WebSocketException):
            pass
        finally:
            self._socket.transport.abort()


def plain(text: str, limit: int = 500) -> str:
    """Foreign text for a message: control characters as blanks, shortened."""
    cleaned = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return cleaned if len(cleaned) <= limit else f"{cleaned[:limit]}…"


async def _read(text: str) -> Answer:
    is_large = len(text) > LARGE_BYTES
    return await asyncio.to_thread(_checked, text) if is_large else _checked(text)


def _checked(text: str) -> Answer:
    """Type and shape of an answer. `Refused`, or `EpisodeError` for what is not OpenEnv's."""
    raw = text[:RAW_KEPT_CHARS]
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise EpisodeError(Cause.PROTOCOL_VIOLATION, type(exc).__name__, raw=raw) from exc
    kind = frame.get("type") if isinstance(frame, dict) else None
    data = frame.get("data") if isinstance(frame, dict) else None
    if kind == "error":
        raise Refused(data if isinstance(data, dict) else {}, raw)
    if not isinstance(data, dict) or kind not in ("observation", "state"):
        raise EpisodeError(Cause.PROTOCOL_VIOLATION, f"a frame of type {kind!r:.40}", raw=raw)
    if kind == "observation":
        if not isinstance(data.get("observation"), dict) or type(data.get("done")) is not bool:
            raise EpisodeError(Cause.PROTOCOL_VIOLATION, "no observation or no done", raw=raw)
        data["reward"] = _number(data.get("reward"), raw)
    return Answer(data=data, size_bytes=len(text.encode(errors="replace")), text=text)


def _number(reward: object, raw: str) -> float | None:
    """A finite number, or None for "no verdict". Integers of any length are legal JSON."""
    if reward is None:
        return None
    if not isinstance(reward, int | float):
        raise EpisodeError(Cause.PROTOCOL_VIOLATION, "a reward that is not a number", raw=raw)
    try:
        value = float(reward)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise EpisodeError(Cause.REWARD_INVALID, "a reward that is not finite", raw=raw)
    return value
