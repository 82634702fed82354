"""Sends a file of events as spans below one root by OTLP; run by the peers' own interpreter.

Arguments: address, headers in JSON, file. Prints seconds, spans that were refused, and the trace.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

AT_ONCE = 500
STEP_NS = 1_000_000


def main(url: str, headers: str, path: str) -> None:
    sdk = import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    api = import_module("opentelemetry.trace")
    kept: list[Any] = []

    class Keep:
        """A processor that only collects."""

        def on_start(self, *_: Any, **__: Any) -> None: ...
        def _on_ending(self, *_: Any) -> None: ...
        def on_end(self, span: Any) -> None:
            kept.append(span)

        def shutdown(self) -> None: ...
        def force_flush(self, *_: Any) -> bool:
            return True

    provider = sdk.TracerProvider()
    provider.add_span_processor(Keep())
    tracer = provider.get_tracer("bench")
    base = time.time_ns() - 40_000 * STEP_NS
    root = tracer.start_span(
        "long trace", start_time=base, attributes={"openinference.span.kind": "AGENT"}
    )
    under = api.set_span_in_context(root)
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            kind, text = json.loads(line)
            looks = "LLM" if kind == "action" else "TOOL"
            span = tracer.start_span(
                f"event {number} {kind}",
                context=under,
                start_time=base + number * STEP_NS,
                attributes={"openinference.span.kind": looks, "output.value": text},
            )
            span.end(base + (number + 1) * STEP_NS)
    root.end(base + 40_000 * STEP_NS)
    exporter = otlp.OTLPSpanExporter(endpoint=url, headers=json.loads(headers), timeout=120)
    spans = [kept[-1], *kept[:-1]]
    started_s = time.monotonic()
    refused = 0
    for at in range(0, len(spans), AT_ONCE):
        batch = spans[at : at + AT_ONCE]
        if exporter.export(batch) is not export.SpanExportResult.SUCCESS:
            refused += len(batch)
    told = {
        "seconds": time.monotonic() - started_s,
        "refused": refused,
        "trace": format(root.get_span_context().trace_id, "032x"),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
