"""What each process counts of its own work, as Prometheus metrics.

Counting is an addition in memory. No process listens on a port for it: every one writes its figures
into its row of `orchestrator.processes` along with its sign of life, and `/metrics` of any web
process shows those of all (`orchestrator.operating.exposition`). So workers on other hosts are seen
without a further address, and several web processes behind one proxy give the same answer.

Labels have few values by design: kinds, states and queues, never ids or names that people chose.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry(auto_describe=True)

_FAST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"switchback_{name}", text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"switchback_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"switchback_{name}", text, labels, registry=REGISTRY, buckets=buckets)


HTTP_REQUESTS = _counter(
    "http_requests", "Requests that were answered.", "area", "method", "status"
)
HTTP_SECONDS = _histogram(
    "http_request_seconds", "From a request to its answer.", "area", buckets=_FAST_S
)
SOCKETS = _gauge("feed_sockets", "Live feeds that are open.")
SOCKETS_REFUSED = _counter("feed_sockets_refused", "Live feeds that were refused.")
FEED_LAG_SECONDS = _histogram(
    "feed_lag_seconds", "From the commit of an event to its frame on the feed.", buckets=_FAST_S
)

JOBS_STARTED = _counter("jobs_started", "Attempts at jobs that began.", "kind")
JOBS_ENDED = _counter("jobs_ended", "Attempts at jobs that ended.", "kind", "outcome")
JOB_SECONDS = _histogram("job_seconds", "Length of an attempt at a job.", "kind", buckets=_SLOW_S)
JOB_WAIT_SECONDS = _histogram(
    "job_wait_seconds", "From the making of a job to its first attempt.", buckets=_SLOW_S
)
LEASES_LOST = _counter("leases_lost", "Attempts that lost their lease to another worker.")

ROLLOUTS_ENDED = _counter("rollouts_ended", "Rollouts that ended.", "state", "cause")
VERDICTS = _counter("verdicts", "Verdicts of criteria on rollouts as they ended.", "state")
TOKENS = _counter("tokens", "Tokens of rollouts and judges.", "use", "direction")
COST_USD = _counter("cost_usd", "What tokens cost, in US dollars.", "use")
MODEL_SECONDS = _histogram(
    "model_request_seconds", "Requests to models, with their retries.", "outcome", buckets=_FAST_S
)

INGESTED = _counter("ingested_events", "Events from outside.", "outcome")
INGEST_TURNED_AWAY = _counter(
    "ingest_turned_away", "Requests with events that were told to come again later."
)
WEBHOOK_ATTEMPTS = _counter("webhook_attempts", "Attempts to deliver a message.", "outcome")

SWEPT_AT = _gauge("sweep_last_timestamp_seconds", "When this process last swept; 0: never.")
SWEEP_ANNOUNCED = _counter("sweep_announced", "Jobs that the sweep announced again.")
SWEEP_FAILED = _counter("sweep_failed", "Rounds of the sweep that failed.")

DATABASE_WRITE_SECONDS = _histogram(
    "database_write_seconds", "One small write, at every sign of life.", buckets=_FAST_S
)
CLOCK_SKEW_SECONDS = _gauge("clock_skew_seconds", "This host's clock less the database's.")
RESIDENT_BYTES = _gauge("process_resident_bytes", "Memory of the process.")
CPU_SECONDS = _gauge("process_cpu_seconds", "Processor time of the process so far.")
DISK_FREE_BYTES = _gauge("disk_free_bytes", "Free on the disk of the data folder.")


def snapshot() -> list[dict[str, Any]]:
    """The figures as plain JSON: families with their samples."""
    return [
        {
            "name": family.name,
            "type": family.type,
            "text": family.documentation,
            "samples": [[s.name, s.labels, s.value] for s in family.samples],
        }
        for family in REGISTRY.collect()
        if family.samples
    ]
