"""What `manage.py doctor` finds in an installation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.utils import timezone

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.diagnosis import Finding
from orchestrator.jobs.models import Job, JobState
from orchestrator.operating import findings, parts
from orchestrator.operating.findings import installation_findings
from orchestrator.operating.orphans import Seen, orphans
from orchestrator.operating.parts import Watch
from orchestrator.processes.beating import Beating
from orchestrator.processes.models import Process
from orchestrator.projects.secrets import encrypt
from orchestrator.webhooks.models import Delivery, DeliveryState, Webhook
from tests.base import People

Found = Callable[[], dict[str, Finding]]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """The findings by name, without parts that other threads would look at."""
    monkeypatch.setattr(parts, "watch", Watch([parts.Part("nothing", False, lambda: "")]))
    # Other tests on this machine may be leaving something over at this very moment.
    monkeypatch.setattr(findings, "orphans", list)
    return lambda: {one.name: one for one in installation_findings()}


def job(**values: Any) -> Job:
    now = timezone.now()
    made = Job.objects.create(
        **{"kind": "operating.test", "lease_until": now, "state": JobState.QUEUED, **values}
    )
    if "created_at" in values:
        Job.objects.filter(pk=made.pk).update(created_at=values["created_at"])
    return made


@pytest.mark.django_db
def test_an_empty_installation_has_nothing_wrong(found: Found) -> None:
    assert {one.level for one in found().values()} <= {"ok", "note"}


@pytest.mark.django_db
def test_a_job_that_waits_beside_a_free_slot_is_stuck(found: Found) -> None:
    job(created_at=timezone.now() - timedelta(minutes=9))
    assert found()["queue default"].level == "ok", "without a worker that is no queue's fault"

    Beating("worker", queues=["default"], slots=1).beat()
    assert found()["queue default"].level == "warn"
    assert "though a slot is free" in found()["queue default"].text

    job(state=JobState.RUNNING, lease_until=timezone.now() + timedelta(minutes=1))
    assert found()["queue default"].level == "ok", "all slots are busy"


@pytest.mark.django_db
def test_a_queue_that_grows_is_told(found: Found) -> None:
    for _ in range(40):
        job()

    assert "it grows: 40 made and 0 ended" in found()["queue default"].text


@pytest.mark.django_db
def test_jobs_of_dead_workers_and_jobs_on_their_last_attempt(found: Found) -> None:
    dead = job(state=JobState.RUNNING, lease_until=timezone.now() - timedelta(minutes=5))
    job(strikes=4, error="ValueError: no such thing\nTraceback")
    job(state=JobState.FAILED, error="It broke.", ended_at=timezone.now())

    told = found()

    assert told["stuck jobs"].level == "fail" and str(dead.pk) in told["stuck jobs"].text
    assert "ValueError: no such thing" in told["failing jobs"].text
    assert "\n" not in told["failing jobs"].text
    assert "1 operating.test; the last: It broke." in told["failed jobs"].text


@pytest.mark.django_db
def test_versions_clocks_and_silence(found: Found) -> None:
    for kind in ("web", "worker", "sweep"):
        Beating(kind).beat()
    assert found()["versions"].level == "ok"

    Process.objects.filter(kind="worker").update(build="0123456789ab", host="old", skew_s=-7.5)
    Process.objects.filter(kind="sweep").update(seen_at=timezone.now() - timedelta(minutes=9))
    told = found()

    assert told["versions"].level == "warn" and "worker old:" in told["versions"].text
    assert told["clocks"].level == "fail" and "old is -7.5 s off" in told["clocks"].text
    assert told["silent processes"].level == "note" and "sweep" in told["silent processes"].text


@pytest.mark.django_db
def test_secrets_of_a_lost_key_are_named_and_not_shown(
    found: Found, people: People, settings: Any
) -> None:
    secret = encrypt("sk-canary")
    ModelEndpoint.objects.create(project=people.project, name="Judge", model="m", secret=secret)
    assert found()["secrets"].level == "ok"

    settings.SECRET_KEY = "another-key-0123456789-0123456789-0123456789"
    told = found()["secrets"]

    assert told.level == "fail" and "Judge" in told.text and "sk-canary" not in str(told)


@pytest.mark.django_db
def test_webhooks_that_fail_or_were_stopped(found: Found, people: People) -> None:
    hook = Webhook.objects.create(project=people.project, url="https://x.example", secret="")
    for state in ("delivered", "failed", "failed", "failed"):
        Delivery.objects.create(webhook=hook, topic="ping", body="{}", state=state)
    assert "the last three messages failed" in found()["webhooks"].text

    Delivery.objects.create(webhook=hook, topic="ping", body="{}", state=DeliveryState.DELIVERED)
    assert found()["webhooks"].level == "ok"
    Webhook.objects.update(is_active=False, stopped_reason="It answered 410 Gone.")
    assert f"stopped by Switchback: {hook.pk}" in found()["webhooks"].text


@pytest.mark.django_db
def test_a_group_that_breaks_takes_no_other_with_it(
    found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> Iterator[Finding]:
        raise OperationalError("disk I/O error")

    monkeypatch.setattr(findings, "_queues", breaks)
    told = found()

    assert told["queues"].level == "warn" and "disk I/O error" in told["queues"].text
    assert told["webhooks"].level == "ok"


@pytest.mark.django_db
def test_the_command_tells_both_and_can_leave_the_installation_out(
    found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.management.commands import doctor

    monkeypatch.setattr(doctor, "findings", lambda data: [Finding("sandbox", "ok", "works")])

    def told(*options: str) -> Any:
        out = StringIO()
        call_command("doctor", "--json", *options, stdout=out)
        return json.loads(out.getvalue())

    everything = told()
    assert everything["ok"] is True
    assert {"sandbox", "queue gpu", "webhooks"} <= {one["name"] for one in everything["findings"]}
    assert [one["name"] for one in told("--machine")["findings"]] == ["sandbox"]


# Processes that nobody looks after


def test_children_of_a_worker_are_left_over_when_it_is_gone(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()

    def process(pid: int, parent: int, *command: str, name: str = "python") -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cmdline").write_bytes("\0".join(command).encode() + b"\0")
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1")

    process(1, 0, "/sbin/init")
    process(10, 1, "python", "-m", "celery", "-A", "orchestrator.celery", "worker")
    process(11, 10, "bwrap", "--unshare-all")
    process(12, 11, "python", "-m", "orchestrator.environments.qa.server", name="a) S 1 (b")
    process(20, 1, "python", "-m", "orchestrator.environments.terminal.server")
    process(21, 20, "python", "-m", "training.jobs.runner", "job.json")
    process(30, 1, "python", "-m", "training.serve")
    process(31, 1, "vim", "training/jobs/runner.py")

    left = orphans(tmp_path)

    assert left is not None
    assert {one.pid for one in left} == {20, 21}
    assert Seen(20, 1, "python -m orchestrator.environments.terminal.server") in left
    assert orphans(tmp_path / "absent") is None
