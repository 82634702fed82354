"""`/metrics`: what it says, of whom, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from orchestrator import measures
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import _handlers, job_handler
from orchestrator.jobs.services import enqueue
from orchestrator.processes.beating import Beating
from orchestrator.processes.models import Process
from orchestrator.projects.models import User
from tests.operating.reading import read, value_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def nothing_to_do() -> Iterator[str]:
    job_handler("operating.test")(lambda ctx: None)
    yield "operating.test"
    del _handlers["operating.test"]


def test_jobs_that_wait_are_counted_with_the_age_of_the_oldest(
    client: Client, nothing_to_do: str
) -> None:
    for _ in range(2):
        enqueue(kind=nothing_to_do, spec={})
    Job.objects.update(created_at=timezone.now() - timedelta(seconds=90))
    enqueue(kind=nothing_to_do, spec={}, not_before=timezone.now() + timedelta(hours=1))
    dead = enqueue(kind=nothing_to_do, spec={})
    Job.objects.filter(pk=dead.pk).update(
        state=JobState.RUNNING, lease_until=timezone.now() - timedelta(seconds=5)
    )

    found = read(client)

    of_job = {"queue": "default", "kind": nothing_to_do}
    assert value_of(found, "switchback_jobs", **of_job, state="queued") == 2
    assert value_of(found, "switchback_jobs", **of_job, state="delayed") == 1
    assert value_of(found, "switchback_jobs", **of_job, state="lapsed") == 1
    oldest_s = value_of(found, "switchback_job_oldest_seconds", queue="default")
    assert oldest_s is not None and 90 <= oldest_s < 600


def test_every_process_that_gives_signs_of_life_has_its_own_samples(client: Client) -> None:
    measures.SWEEP_ANNOUNCED.inc()
    for kind in ("web", "worker"):
        Beating(kind, queues=["gpu"], slots=3).beat()
    Process.objects.filter(kind="worker").update(host="elsewhere")
    gone = Beating("worker", queues=["rollouts"], slots=9)
    gone.beat()
    Process.objects.filter(key=gone.key).update(seen_at=timezone.now() - timedelta(minutes=20))

    found = read(client)

    samples = found["switchback_sweep_announced_total"]
    assert {(labels["process"], labels["host"]) for labels, _ in samples} >= {
        ("web", Process.objects.get(kind="web").host),
        ("worker", "elsewhere"),
    }
    assert value_of(found, "switchback_workers", queue="gpu") == 1
    assert value_of(found, "switchback_workers", queue="rollouts") == 0
    assert value_of(found, "switchback_worker_slots", queue="gpu") == 3
    assert value_of(found, "switchback_builds") == 1


def test_the_text_is_what_prometheus_reads(client: Client) -> None:
    Beating("web").beat()
    answer = client.get("/metrics", HTTP_HOST="localhost")

    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.content.decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(family.documentation for family in families)


def test_a_database_that_is_away_is_a_figure_and_no_fault(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import OperationalError

    def away() -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr("orchestrator.operating.exposition.figures", away)

    assert read(client)["switchback_database_up"] == [({}, 0)]


# Who may


@pytest.mark.parametrize(
    "headers",
    [
        {"REMOTE_ADDR": "192.0.2.7"},
        {"HTTP_X_FORWARDED_FOR": "192.0.2.7"},
        {"HTTP_HOST": "switchback.example"},
        {"HTTP_VIA": "1.1 proxy"},
        {"REMOTE_ADDR": ""},
    ],
)
def test_strangers_are_refused(client: Client, headers: dict[str, str], settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]

    answer = client.get("/metrics", **{"HTTP_HOST": "localhost", **headers})  # type: ignore[arg-type]

    assert answer.status_code == 403
    assert b"switchback_" not in answer.content


def test_a_token_opens_them_from_anywhere_and_closes_the_machine_itself(
    client: Client, settings: Any
) -> None:
    settings.METRICS_TOKEN = "a-token-for-monitors"

    def status(authorization: str, address: str) -> int:
        headers = {"Authorization": authorization} if authorization else {}
        return client.get("/metrics", headers=headers, REMOTE_ADDR=address).status_code

    assert status("Bearer a-token-for-monitors", "192.0.2.7") == 200
    assert status("Bearer a-token-for-monitor", "127.0.0.1") == 403
    assert status("Bearer ä", "127.0.0.1") == 403
    assert status("", "127.0.0.1") == 403


def test_behind_a_proxy_with_tls_this_machine_is_nobody_special(
    client: Client, settings: Any
) -> None:
    settings.SESSION_COOKIE_SECURE = True

    assert client.get("/metrics", HTTP_HOST="localhost").status_code == 403


@pytest.mark.parametrize(("is_operator", "status"), [(True, 200), (False, 403)])
def test_operators_may_look_from_anywhere(client: Client, is_operator: bool, status: int) -> None:
    user = User.objects.create_user("ana", password=None)
    user.is_superuser = is_operator
    user.save()
    client.force_login(user)

    assert client.get("/metrics", REMOTE_ADDR="192.0.2.7").status_code == status
