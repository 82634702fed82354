"""The example rules and the dashboard name figures that there are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.test import Client

from orchestrator import measures
from orchestrator.processes.beating import Beating
from tests.operating.reading import read

FOLDER = settings.BASE_DIR / "deploy" / "monitoring"
_NAME = re.compile(r"\bswitchback_[a-z0-9_]+")
_LABELS = re.compile(r"\b(switchback_[a-z0-9_]+)\{([^}]*)\}")


def rules() -> list[dict[str, Any]]:
    told = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in told["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    board = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    of_panels = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + of_panels


def declared() -> dict[str, set[str]]:
    """Names of samples with their labels, of figures that processes count themselves."""
    found: dict[str, set[str]] = {}
    for metric in measures.REGISTRY._collector_to_names:
        labels = {*metric._labelnames, "process", "host", "pid", "le"}  # type: ignore[attr-defined]
        for name in measures.REGISTRY._collector_to_names[metric]:
            found[name] = labels
    return found


@pytest.mark.django_db
def test_every_figure_that_is_named_is_there_with_its_labels(client: Client) -> None:
    Beating("web").beat()
    known = declared()
    for name, samples in read(client).items():
        known.setdefault(name, set()).update(*(labels for labels, _ in samples))
    # Families of the database that have no sample where there is no work.
    for name, labels in {
        "switchback_jobs": {"queue", "kind", "state"},
        "switchback_runs_open": {"state"},
        "switchback_rollouts_open": {"state"},
        "switchback_climbs": {"state"},
    }.items():
        assert name.encode() in client.get("/metrics", HTTP_HOST="localhost").content
        known.setdefault(name, set()).update(labels)

    named = {name for told in expressions() for name in _NAME.findall(told)}
    assert named, "expressions were read"
    assert named <= set(known)
    for told in expressions():
        for name, labels in _LABELS.findall(told):
            used = {part.partition("=")[0].strip(" ~!") for part in labels.split(",")}
            assert used <= known[name], f"{name}{{{labels}}}"


def test_every_figure_is_used_or_at_least_told() -> None:
    told = (settings.BASE_DIR / "docs/how-to/observe.md").read_text(encoding="utf-8")

    for family in measures.REGISTRY.collect():
        assert family.name in told, f"docs/how-to/observe.md says nothing of {family.name}"


def test_rules_say_how_bad_it_is_and_what_has_happened() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert len(rule["annotations"]["summary"]) > 20
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_panels_do_not_lie_over_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
