"""Answers of a model server without the key that it was sent.

Providers quote keys in their refusals, and a proxy may echo whole requests. Answers end in traces,
logs, verdicts and exports, so the key is taken out where they come in, before anything reads them.
"""

from __future__ import annotations

import httpx

SHOWN = "[API key]"
SHORTEST = 6
"""Characters; something shorter is no secret and would be found in innocent words."""
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")


def transport_for(key: str, **options: object) -> httpx.AsyncBaseTransport:
    """A transport for a client of one endpoint. `options` as of `httpx.AsyncHTTPTransport`."""
    plain = httpx.AsyncHTTPTransport(**options)  # type: ignore[arg-type]
    return RedactingTransport(plain, key) if len(key) >= SHORTEST else plain


class RedactingTransport(httpx.AsyncBaseTransport):
    """Reads each answer as a whole: for requests that do not stream."""

    def __init__(self, inner: httpx.AsyncBaseTransport, key: str) -> None:
        self._inner = inner
        self._key, self._shown = key.encode(), SHOWN.encode()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        try:
            body = await answer.aread()
        finally:
            await answer.aclose()
        if self._key not in body and not any(self._key in value for _, value in answer.headers.raw):
            return answer
        kept = [
            (name, value.replace(self._key, self._shown))
            for name, value in answer.headers.raw
            if name.decode("latin-1").lower() not in _OF_THE_BODY
        ]
        return httpx.Response(
            answer.status_code,
            headers=kept,
            content=body.replace(self._key, self._shown),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()
