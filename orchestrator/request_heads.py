"""HTTP by httptools with a bound on what comes before a body, which it does not have itself.

Its parser keeps an address, headers or trailers for as long as they come: one client without an
account could fill the memory. No limit of the application comes in time, since it is asked only
once a head is whole.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES = 65_536
"""As h11 has it; browsers and proxies send a tenth. What ends within one read, of 256 kB at most,
is taken."""


class BoundedHeads(HttpToolsProtocol):
    _n_unread = 0
    """Bytes since a head was whole or a piece of a body came."""

    def data_received(self, data: bytes) -> None:
        self._n_unread += len(data)
        super().data_received(data)
        if self._n_unread > MOST_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {MOST_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        self._n_unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._n_unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._n_unread = 0
        super().on_message_complete()
