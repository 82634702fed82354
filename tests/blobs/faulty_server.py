"""An S3 server (moto) behind a door that misbehaves as told: the faults of networks and stores."""

from __future__ import annotations

import http.client
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUCKET = "tests"


@dataclass
class Door:
    """What happens to the requests that come next, oldest first; afterwards all goes well.

    `503`: refused. `lost`: done, and the connection closed before the answer. `cut`: half of the
    answer's body. `drop`: closed before anything is done. `silent`: no answer until `let_go`.
    """

    url: str = ""
    faults: deque[str] = field(default_factory=deque)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request, with its query."""
    let_go: threading.Event = field(default_factory=threading.Event)


@contextmanager
def s3_server() -> Iterator[Door]:
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    door = Door()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(door, moto.get_host_and_port()[1]))
    server.daemon_threads = True
    door.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield door
    finally:
        door.let_go.set()
        server.shutdown()
        server.server_close()
        moto.stop()


def _handler(door: Door, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            door.seen.append((self.command, self.path))
            fault = door.faults.popleft() if door.faults else ""
            if fault == "silent":
                door.let_go.wait(60)
            if fault in ("drop", "silent"):
                self.close_connection = True
                return
            if fault == "503":
                self._answer(503, [("Content-Type", "text/plain")], b"slow down")
                return
            inner = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            inner.request(self.command, self.path, body=body or None, headers=dict(self.headers))
            found = inner.getresponse()
            content = found.read()
            inner.close()
            if fault == "lost":
                self.close_connection = True
                return
            self._answer(found.status, found.getheaders(), content, is_cut=fault == "cut")

        def _answer(
            self,
            status: int,
            headers: list[tuple[str, str]],
            content: bytes,
            *,
            is_cut: bool = False,
        ) -> None:
            self.send_response(status)
            length = str(len(content))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if is_cut else content)
            if is_cut:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            return

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    return Handler
