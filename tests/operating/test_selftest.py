"""`switchback selftest`: every kind arrives, and what does not is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import measures
from orchestrator.api import traces
from orchestrator.traces.models import OutsideEvent, RefusedItem
from orchestrator.traces.queries import events_told
from orchestrator.web.trace_outside import ROLES
from switchback_cli.selftest import KINDS
from tests.base import People
from tests.cli.room import Shell, make_shell

pytestmark = pytest.mark.django_db


@pytest.fixture
def shell(people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return make_shell(people, tmp_path, monkeypatch)


def counted(outcome: str) -> float:
    name, labels = "switchback_ingested_events_total", {"outcome": outcome}
    return measures.REGISTRY.get_sample_value(name, labels) or 0.0


def test_one_event_of_each_kind_arrives_once(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: counted(name) for name in ("accepted", "duplicate", "refused")}
    assert shell.run("selftest") == 0

    found = {name: counted(name) - n for name, n in before.items()}
    assert found == {"accepted": len(KINDS), "duplicate": len(KINDS), "refused": 1}
    told = capsys.readouterr().err
    assert "FAIL" not in told and "See it at" in told
    assert all(f"{kind} stored as sent" in told for kind in KINDS)
    assert OutsideEvent.objects.count() == len(KINDS)
    assert [item.reason_kind for item in RefusedItem.objects.all()] == ["id_conflict"]


def test_every_kind_that_the_trace_page_knows_is_tried() -> None:
    assert set(ROLES) <= set(KINDS)


def test_what_is_lost_is_told_and_ends_with_1(
    shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "events_told", lambda owner: list(events_told(owner))[1:])

    assert shell.run("selftest") == 1
    told = capsys.readouterr().err
    assert "FAIL  user stored as sent" in told and "ok    turn stored as sent" in told
