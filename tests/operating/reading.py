"""Samples of `/metrics` by name."""

from __future__ import annotations

from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, list[tuple[dict[str, str], float]]]


def read(client: Client) -> Samples:
    answer = client.get("/metrics", HTTP_HOST="localhost")
    assert answer.status_code == 200, answer.content
    found: Samples = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def value_of(found: Samples, name: str, **labels: str) -> float | None:
    """Of the first sample with these labels."""
    for its, value in found.get(name, []):
        if labels.items() <= its.items():
            return value
    return None
