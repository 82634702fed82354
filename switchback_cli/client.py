"""Requests to a Switchback server that outlive its restarts.

A request is repeated, with growing pauses, as long as the server cannot be reached, is starting
(502, 503, 504) or asks to come later (429), up to `patience` seconds in all. What starts work is
sent with an Idempotency-Key, so that a repeat whose first answer was lost starts nothing twice.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from switchback_cli.errors import CommandFailed, Refused

COMES_BACK = frozenset({429, 502, 503, 504})
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
TIMEOUT_S = 30.0


@dataclass
class Server:
    """One server and one token. `told` hears, once each, that it is away and that it is back."""

    url: str
    token: str
    patience: float = 600.0
    told: Callable[[str], None] = lambda text: None
    pause: Callable[[float], object] = field(
        default_factory=lambda: threading.Event().wait, repr=False
    )
    transport: httpx.BaseTransport | None = None

    def __post_init__(self) -> None:
        self._http = httpx.Client(
            base_url=self.url.rstrip("/"),
            headers={"Authorization": f"Bearer {self.token}", "Accept": "application/json"},
            timeout=TIMEOUT_S,
            transport=self.transport,
        )

    def get(self, path: str, **query: Any) -> Any:
        return self._answer("GET", path, params=query).json()

    def text(self, path: str, **query: Any) -> str:
        return self._answer("GET", path, params=query).text

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """`key`: the Idempotency-Key; one is made up, so that repeats are safe."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self._answer("POST", path, json=body, headers=headers).json()

    def send(self, path: str, content: bytes, content_type: str) -> Any:
        headers = {"Content-Type": content_type}
        return self._answer("POST", path, content=content, headers=headers).json()

    def save(self, path: str, target: Path) -> int:
        """A file of any size, piece by piece; its bytes. `target` is there when it is whole.

        Raises as the others do; a connection that breaks is begun anew once.
        """
        address = path if path.startswith("http") else f"/api/v1/{path}"
        draft = target.with_name(f".{target.name}.part")
        for is_last in (False, True):
            try:
                with self._http.stream("GET", address, headers={"Accept": "*/*"}) as response:
                    if not response.is_success:
                        response.read()
                        _checked(response)
                    with draft.open("wb") as file:
                        for piece in response.iter_bytes():
                            file.write(piece)
                draft.replace(target)
                return target.stat().st_size
            except httpx.TransportError as error:
                if is_last:
                    raise CommandFailed(f"{target.name} did not come whole: {error}") from error
            finally:
                draft.unlink(missing_ok=True)
        raise AssertionError("the second attempt returns or raises")

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Raises Refused for what the server will not do, CommandFailed when it stays away."""
        address = path if path.startswith("http") else f"/api/v1/{path}"
        deadline = time.monotonic() + self.patience
        pause, why = FIRST_PAUSE_S, ""
        while True:
            asked: float | None = None
            try:
                response = self._http.request(method, address, **options)
            except httpx.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
            except httpx.InvalidURL as error:
                raise CommandFailed(f"{self.url} is no address: {error}.") from error
            else:
                if response.status_code not in COMES_BACK:
                    if why:
                        self.told("The server is back.")
                    return _checked(response)
                reason = f"HTTP {response.status_code}"
                asked = _seconds(response.headers)
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"{self.url} did not answer for {self.patience:.0f} seconds ({reason}). Check "
                    "the address (--url or SWITCHBACK_URL) and whether it runs."
                )
            if not why:
                self.told(f"Waiting for the server: {reason}")
            why = reason
            self.pause(min(asked or pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _seconds(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        told = response.json()
        detail = str(told["detail"])
        reasons = [
            f"  {reason['field'] or 'request'}: {reason['message']}"
            for reason in told.get("errors", ())
        ]
    except (ValueError, KeyError, TypeError):
        detail, reasons = response.text[:300], []
    if response.status_code == 401:
        reasons.append("  Make a token in the project's settings; set SWITCHBACK_TOKEN or log in.")
    raise Refused("\n".join([f"HTTP {response.status_code}: {detail}", *reasons]))
