"""From an event to another program: signed, once for each listener, again until it is taken."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.events.services import NewEvent, append
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs.models import Run
from orchestrator.webhooks.models import Delivery, DeliveryState, Webhook
from orchestrator.webhooks.sending import DELAYS_S
from orchestrator.webhooks.services import WebhookRefused, add_webhook, replay, set_active
from orchestrator.webhooks.signing import is_genuine
from orchestrator.webhooks.targets import TargetRefused
from tests.base import People
from tests.web.build import make_run

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Receiver:
    url: str
    statuses: list[int]
    """Of the next answers; 204 after the last."""
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.heard.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(found.statuses.pop(0) if found.statuses else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    found = Receiver(url=f"http://127.0.0.1:{port}/hook", statuses=[])
    settings.WEBHOOK_HOSTS = [f"127.0.0.1:{port}"]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def end(run: Run) -> None:
    append(stream_id=run.stream_id, items=[NewEvent("run.ended", {"state": "completed"})])


def work() -> None:
    """Every queued attempt, as if its time had come."""
    Job.objects.filter(state=JobState.QUEUED).update(not_before=None)
    for job in Job.objects.filter(state=JobState.QUEUED, kind="webhooks.deliver").order_by("id"):
        run_attempt(job.pk)


def test_an_end_is_told_signed_and_once(people: People, receiver: Receiver) -> None:
    run = make_run(people.project)
    made = add_webhook(
        actor=people.owner, project=people.project, url=receiver.url, topics=["run.ended"]
    )
    append(stream_id=run.stream_id, items=[NewEvent("tally", {}), NewEvent("run.started", {})])
    end(run)
    work()
    work()
    ((headers, body),) = receiver.heard
    message = json.loads(body)
    assert (message["type"], message["data"]) == ("run.ended", {"state": "completed"})
    assert message["subject"]["kind"] == "run"
    assert message["subject"]["html_url"].endswith(
        reverse("web:run", args=[people.project.pk, run.pk])
    )
    assert is_genuine(
        made.secret,
        message_id=headers["webhook-id"],
        timestamp_s=int(headers["webhook-timestamp"]),
        body=body,
        given=headers["webhook-signature"],
        now_s=time.time(),
    )
    delivery = Delivery.objects.get()
    assert delivery.state == DeliveryState.DELIVERED
    assert [attempt["status"] for attempt in delivery.attempts] == [204]


def test_what_did_not_happen_is_not_told(people: People, receiver: Receiver) -> None:
    run = make_run(people.project)
    add_webhook(actor=people.owner, project=people.project, url=receiver.url, topics=["run.ended"])
    with transaction.atomic():
        end(run)
        assert Delivery.objects.exists()
        transaction.set_rollback(True)
    assert not Delivery.objects.exists()


def test_only_who_listens_hears_and_no_other_project(people: People, receiver: Receiver) -> None:
    run = make_run(people.project)
    add_webhook(actor=people.owner, project=people.project, url=receiver.url, topics=["climb.rung"])
    other = people.stranger.memberships.get().project
    add_webhook(actor=people.stranger, project=other, url=receiver.url, topics=["run.ended"])
    end(run)
    assert not Delivery.objects.exists()


def test_it_is_sent_again_with_longer_waits_until_it_is_taken(
    people: People, receiver: Receiver
) -> None:
    run = make_run(people.project)
    add_webhook(actor=people.owner, project=people.project, url=receiver.url, topics=["run.ended"])
    receiver.statuses = [500, 302]
    end(run)
    for wait_s in DELAYS_S[:2]:
        began = timezone.now()
        work()
        job = Job.objects.get(kind="webhooks.deliver")
        assert job.not_before is not None
        assert job.not_before >= began + timedelta(seconds=wait_s)
    work()
    delivery = Delivery.objects.get()
    assert delivery.state == DeliveryState.DELIVERED
    assert [attempt["status"] for attempt in delivery.attempts] == [500, 302, 204]
    assert [attempt["error"] for attempt in delivery.attempts] == [
        "It answered 500.",
        "It answered 302.",
        "",
    ]
    assert len({headers["webhook-id"] for headers, _ in receiver.heard}) == 1


def test_after_the_last_attempt_it_has_failed_and_can_be_sent_again(
    people: People, receiver: Receiver
) -> None:
    run = make_run(people.project)
    add_webhook(actor=people.owner, project=people.project, url=receiver.url, topics=["run.ended"])
    receiver.statuses = [503] * (len(DELAYS_S) + 1)
    end(run)
    for _ in range(len(DELAYS_S) + 1):
        work()
    delivery = Delivery.objects.get()
    assert (delivery.state, len(delivery.attempts)) == (DeliveryState.FAILED, len(DELAYS_S) + 1)
    again = replay(actor=people.owner, delivery=delivery)
    with pytest.raises(WebhookRefused, match="still being sent"):
        replay(actor=people.owner, delivery=again)
    work()
    again.refresh_from_db()
    assert again.state == DeliveryState.DELIVERED
    assert len({headers["webhook-id"] for headers, _ in receiver.heard}) == 1
    assert receiver.heard[0][1] == receiver.heard[-1][1]


def test_gone_stops_the_webhook(people: People, receiver: Receiver) -> None:
    run = make_run(people.project)
    hook = add_webhook(
        actor=people.owner, project=people.project, url=receiver.url, topics=["run.ended"]
    ).webhook
    receiver.statuses = [410]
    end(run)
    work()
    hook.refresh_from_db()
    assert not hook.is_active
    assert "410" in hook.stopped_reason
    assert Delivery.objects.get().state == DeliveryState.FAILED
    end(run)
    assert Delivery.objects.count() == 1
    set_active(actor=people.owner, webhook=hook, is_active=True)
    end(run)
    work()
    assert Delivery.objects.latest("pk").state == DeliveryState.DELIVERED


def test_who_may_add_one_and_where_to(people: People, receiver: Receiver) -> None:
    with pytest.raises(PermissionDenied):
        add_webhook(actor=people.editor, project=people.project, url=receiver.url, topics=[])
    with pytest.raises(TargetRefused):
        add_webhook(actor=people.owner, project=people.project, url="https://127.0.0.1/", topics=[])
    with pytest.raises(WebhookRefused, match="Unknown: nothing"):
        add_webhook(
            actor=people.owner, project=people.project, url=receiver.url, topics=["nothing"]
        )


def test_the_pages_add_ping_and_show(people: People, receiver: Receiver) -> None:
    client = Client()
    client.force_login(people.owner)
    project_id = people.project.pk
    url = reverse("web:webhooks", args=[project_id])
    assert "Nobody is told yet" in client.get(url).content.decode()
    refused = client.post(url, {"url": "https://127.0.0.1/", "topics": ["run.ended"]})
    assert refused.status_code == 422
    assert "SWITCHBACK_WEBHOOK_HOSTS" in refused.content.decode()
    made = client.post(url, {"url": receiver.url, "topics": ["run.ended"]}).content.decode()
    assert "whsec_" in made
    hook = Webhook.objects.get()
    detail = reverse("web:webhook", args=[project_id, hook.pk])
    assert "whsec_" not in client.get(detail).content.decode()
    client.post(reverse("web:webhook_change", args=[project_id, hook.pk, "ping"]))
    work()
    assert json.loads(receiver.heard[0][1])["type"] == "ping"
    assert "Send again" in client.get(detail).content.decode()
    for name in ("editor", "member"):
        client.force_login(getattr(people, name))
        assert client.get(url).status_code == 403
        assert client.get(detail).status_code == 403
    client.force_login(people.stranger)
    assert client.get(detail).status_code == 404
