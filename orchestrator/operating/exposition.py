"""`/metrics`: the database's figures, and those of every process that gives signs of life."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import Error
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from orchestrator import measures
from orchestrator.operating.figures import figures
from orchestrator.processes.beating import own_key
from orchestrator.processes.models import Process
from orchestrator.processes.queries import living

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class _Gathered(Collector):
    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("switchback_database_up", "1: the figures of the database are here.")
        try:
            found = [*figures(), *process_figures(list(living()))]
        except Error:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield from found


def process_figures(processes: list[Process]) -> list[Metric]:
    """One family for a name, with a sample of each process."""
    families: dict[str, Metric] = {}
    info = GaugeMetricFamily(
        "switchback_process_info",
        "1 for each process that gives signs of life.",
        labels=["process", "host", "pid", "version", "build"],
    )
    seen = GaugeMetricFamily(
        "switchback_process_seen_timestamp_seconds",
        "When a process last gave a sign of life.",
        labels=["process", "host", "pid"],
    )
    for process in processes:
        place = {"process": process.kind, "host": process.host, "pid": str(process.pid)}
        info.add_metric([*place.values(), process.version, process.build], 1)
        seen.add_metric([*place.values()], process.seen_at.timestamp())
        # This process knows its own figures better than its last sign of life.
        is_own = process.key == own_key(process.kind)
        for told in measures.snapshot() if is_own else process.measures:
            family = families.setdefault(
                told["name"], Metric(told["name"], told["text"], told["type"])
            )
            for name, labels, value in told["samples"]:
                family.add_sample(name, {**place, **labels}, value)
    return [info, seen, *families.values()]


def exposition() -> bytes:
    registry = CollectorRegistry()
    registry.register(_Gathered())
    return generate_latest(registry)
