"""Spans for `durability`: requests made beforehand, and senders that keep a journal of answers."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

AT_ONCE = 500
"""Of one request; the SDK's batch processor sends 512."""
IN_A_TRACE = 25
SENDERS = 4
_WORDS = 60


@dataclass(frozen=True)
class Sent:
    body: bytes
    spans: Sequence[tuple[str, str]]
    """Trace and span ids."""
    word: str
    """That its last span alone holds."""


def requests(n_spans: int, *, at_once: int = AT_ONCE, seed: int = 5) -> list[Sent]:
    """Chat spans of some 700 bytes, several traces in each request."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    draw = random.Random(seed)
    vocabulary = [f"w{draw.randrange(36**4):x}" for _ in range(20_000)]
    base_ns = time.time_ns()
    made = []
    for number in range(0, n_spans, at_once):
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add()
        _set(group.resource.attributes, "service.name", "bench")
        scoped = group.scope_spans.add()
        scoped.scope.name = "bench"
        trace, word = b"", f"needle{seed}x{number}"
        spans: list[tuple[str, str]] = []
        for index in range(min(at_once, n_spans - number)):
            if index % IN_A_TRACE == 0:
                trace = draw.randbytes(16)
            span = scoped.spans.add()
            span.trace_id, span.span_id = trace, draw.randbytes(8)
            span.name = f"step {index}"
            span.start_time_unix_nano = base_ns + (number + index) * 1_000_000
            span.end_time_unix_nano = span.start_time_unix_nano + 900_000
            _set(span.attributes, "gen_ai.operation.name", "chat")
            _set(span.attributes, "gen_ai.request.model", "bench")
            _set(span.attributes, "openinference.span.kind", "LLM")
            text = " ".join(draw.choices(vocabulary, k=_WORDS))
            is_last = index == min(at_once, n_spans - number) - 1
            _set(span.attributes, "output.value", f"{text} {word}" if is_last else text)
            spans.append((trace.hex(), span.span_id.hex()))
        made.append(Sent(request.SerializeToString(), spans, word))
    return made


def _set(attributes: object, key: str, value: str) -> None:
    pair = attributes.add()  # type: ignore[attr-defined] # a repeated field
    pair.key = key
    pair.value.string_value = value


@dataclass
class Journal:
    """What was answered with 200, and when; written by all senders."""

    answered: list[Sent] = field(default_factory=list)
    refused: int = 0
    """Answers other than 200."""
    first_s: float = 0.0
    last_s: float = 0.0

    @property
    def n_spans(self) -> int:
        return sum(len(sent.spans) for sent in self.answered)

    @property
    def rate_hz(self) -> float:
        return self.n_spans / (self.last_s - self.first_s) if self.last_s else 0.0


def send_all(
    url: str,
    made: Sequence[Sent],
    headers: Mapping[str, str],
    *,
    stop: threading.Event | None = None,
) -> Journal:
    """Sends each request once, `SENDERS` at a time; until `stop`, or until the server is gone."""
    journal = Journal(first_s=time.monotonic())
    queue, lock = list(reversed(made)), threading.Lock()
    parts = urlsplit(url)
    assert parts.hostname is not None

    def work() -> None:
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)
        while not (stop is not None and stop.is_set()):
            with lock:
                if not queue:
                    return
                sent = queue.pop()
            try:
                connection.request("POST", parts.path, sent.body, dict(headers))
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                return  # its server was killed, or refuses to be spoken to
            with lock:
                if answer.status == 200:
                    journal.answered.append(sent)
                    journal.last_s = time.monotonic()
                else:
                    journal.refused += 1

    threads = [threading.Thread(target=work, name=f"sender-{i}") for i in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return journal


PROTOBUF = {"Content-Type": "application/x-protobuf"}
