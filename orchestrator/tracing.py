"""OpenTelemetry traces of our own work: request → job → rollout → model call, step, judge.

On where the standard variables name a receiver (`OTEL_EXPORTER_OTLP_ENDPOINT`, or the one for
traces alone) and `requirements/otel.txt` is installed. Otherwise a span is a shared object that
does nothing. Spans carry ids and kinds, never prompts, answers, headers or keys.

A job's row carries the context of whoever made it, so that a trace goes on in another process, on
another host, after a restart.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

Attributes = Mapping[str, str | int | float | bool]
Role = Literal["internal", "server", "client", "consumer"]

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
LAST_S = 3.0
"""For what is left when a process ends."""
_SCOPE = "switchback"
_provider: Any = None
_tracer: Any = None
_end: _Ending | None = None


class Span:
    """One that does nothing, or wraps one of OpenTelemetry's."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner

    def set(self, attributes: Attributes) -> None:
        if self._inner is not None:
            self._inner.set_attributes(dict(attributes))

    def rename(self, name: str) -> None:
        if self._inner is not None:
            self._inner.update_name(name)

    def fail(self, reason: str) -> None:
        """`reason`: a fixed code, no text of strangers."""
        if self._inner is not None:
            from opentelemetry.trace import Status, StatusCode

            self._inner.set_status(Status(StatusCode.ERROR, reason))


_NOTHING = Span()
_OFF: AbstractContextManager[Span] = nullcontext(_NOTHING)


def is_wanted() -> bool:
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and any(os.environ.get(name) for name in ENDPOINT_VARIABLES)


def is_installed() -> bool:
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace.export  # noqa: F401
    except ImportError:
        return False
    return True


def start(part: str, version: str) -> bool:
    """Begins to send spans of this process, if that is wanted; False if it is not, or cannot be."""
    global _provider, _tracer, _end
    if _tracer is not None or not is_wanted() or not is_installed():
        return _tracer is not None  # what is missing is said by the system check switchback.E012
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    told: dict[str, Any] = {
        "service.version": version,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    if "OTEL_SERVICE_NAME" not in os.environ:
        told["service.name"] = f"switchback-{part}"
    _provider = TracerProvider(resource=Resource.create(told), shutdown_on_exit=False)
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = _provider.get_tracer(_SCOPE, version)
    _end = _Ending(_provider)
    atexit.register(stop, LAST_S)
    return True


def stop(within_s: float = 60.0) -> None:
    """Sends what is left and ends. A receiver that is away keeps no process from ending."""
    global _provider, _tracer, _end
    ending, _provider, _tracer, _end = _end, None, None, None
    if ending is not None:
        ending.wait(within_s)


class _Ending:
    """Sends the last spans in a thread that is there: an interpreter that ends begins none."""

    def __init__(self, provider: Any) -> None:
        self._asked = threading.Event()
        self._provider = provider
        self._thread = threading.Thread(target=self._run, name="last-spans", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        self._asked.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        self._asked.wait()
        self._provider.shutdown()


def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    parent: str | None = None,
    role: Role = "internal",
) -> AbstractContextManager[Span]:
    """`parent`: a `traceparent`, where the work was asked for elsewhere; else what is going on."""
    if _tracer is None:
        return _OFF
    return _started(name, attributes, parent, role)


@contextmanager
def _started(
    name: str, attributes: Attributes | None, parent: str | None, role: Role
) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind

    with _tracer.start_as_current_span(
        name,
        context=_context_of(parent) if parent else None,
        kind=SpanKind[role.upper()],
        attributes=dict(attributes or {}),
        # Messages of exceptions may quote what strangers said.
        record_exception=False,
        set_status_on_exception=False,
    ) as inner:
        found = Span(inner)
        try:
            yield found
        except BaseException as error:
            found.fail(type(error).__name__)
            raise


def record(name: str, seconds: float, attributes: Attributes | None = None) -> None:
    """A span that has just ended, below what is going on."""
    if _tracer is None:
        return
    now = time.time_ns()
    done = _tracer.start_span(
        name, start_time=now - int(seconds * 1e9), attributes=dict(attributes or {})
    )
    done.end(end_time=now)


def traceparent() -> str:
    """Of what is going on, in W3C's form; empty without a trace."""
    if _tracer is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def ids() -> dict[str, str]:
    """Trace and span id of what is going on, for log lines."""
    parts = traceparent().split("-")
    return {"trace_id": parts[1], "span_id": parts[2]} if len(parts) == 4 else {}


def _context_of(parent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": parent})
