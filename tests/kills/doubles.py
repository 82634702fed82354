"""A receiver of webhooks, and the waits of the matrix. Needs no Django."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Answers each webhook after a moment; `hear` is called when the answer is out."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self.is_busy = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                receiver.is_busy.set()
                threading.Event().wait(0.4)
                hear(self.headers["webhook-id"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def wait_s(seconds: float) -> None:
    time.sleep(seconds)  # noqa: TID251 # the moment of a fault is drawn, not waited for
