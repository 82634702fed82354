"""Signs of life: who gives them, and what they leave behind."""

from __future__ import annotations

import tomllib
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from orchestrator.processes.beating import Beating
from orchestrator.processes.build import VERSION, build
from orchestrator.processes.models import Process
from orchestrator.processes.queries import living, silent


def test_the_version_is_that_of_the_project_file() -> None:
    told = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))

    assert told["project"]["version"] == VERSION
    assert len(build()) == 12


@pytest.mark.django_db
def test_a_process_has_one_row_that_goes_with_it() -> None:
    process = Beating("worker", queues=["default"], slots=4)
    process.beat()
    process.beat()

    row = Process.objects.get()
    assert (row.kind, row.queues, row.slots, row.build) == ("worker", ["default"], 4, build())
    assert {told["name"] for told in row.measures} >= {"switchback_database_write_seconds"}
    process.stop()
    assert not Process.objects.exists()


@pytest.mark.django_db
def test_one_that_was_killed_is_silent_for_an_hour_and_then_forgotten() -> None:
    killed = Beating("worker")
    killed.beat()
    Process.objects.update(seen_at=timezone.now() - timedelta(minutes=5))
    other = Beating("web")
    other.beat()

    assert [row.key for row in silent()] == [killed.key]
    assert [row.key for row in living()] == [other.key]
    Process.objects.filter(key=killed.key).update(seen_at=timezone.now() - timedelta(minutes=61))
    other.beat()
    assert [row.key for row in Process.objects.all()] == [other.key]
