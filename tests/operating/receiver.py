"""A real OTLP/HTTP receiver on the loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Receiver:
    def __init__(self) -> None:
        self.url = ""
        self.raw: list[bytes] = []
        self.resources: list[dict[str, str]] = []
        self.spans: list[Any] = []

    def take(self, body: bytes) -> None:
        self.raw.append(body)
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for each in request.resource_spans:
            self.resources.append({a.key: a.value.string_value for a in each.resource.attributes})
            for scope in each.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def parent_of(self, span: Any) -> Any:
        return next((one for one in self.spans if one.span_id == span.parent_span_id), None)


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@contextmanager
def receiver() -> Iterator[Receiver]:
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.take(self.rfile.read(int(self.headers["Content-Length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
