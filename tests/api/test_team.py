"""Members' affairs through the API: invitations, limits, the audit log, webhooks."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.api.models import IdempotentRequest
from orchestrator.jobs.models import Job
from orchestrator.projects.access import role_in
from orchestrator.projects.models import AuditEntry, Role
from orchestrator.webhooks.models import Delivery, DeliveryState, Webhook
from tests.api.client import Program, problem_in, program_of
from tests.base import People

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(people: People) -> Program:
    return program_of(people.owner, people.project, role=Role.ADMIN)


@pytest.fixture
def editor(people: People) -> Program:
    return program_of(people.editor, people.project)


def test_a_link_is_made_used_and_listed_without_its_secret(
    people: People, admin: Program, editor: Program
) -> None:
    project_id = people.project.pk
    problem_in(editor.post("invitations", project_id, body={"role": "viewer"}), 403)
    made = admin.post("invitations", project_id, body={"role": "editor", "note": "Ada"})
    assert made.status_code == 201
    answer = made.json()
    secret = answer["link"].rstrip("/").rpartition("/")[2]
    assert not IdempotentRequest.objects.exists()
    guest = Client()
    guest.force_login(people.stranger)
    guest.post(reverse("join", args=[secret]))
    assert role_in(people.stranger, project_id) is Role.EDITOR
    (listed,) = admin.get("invitations", project_id).json()["items"]
    assert listed["is_used"] and secret not in str(listed)
    problem_in(admin.send("DELETE", "invitation", project_id, answer["id"]), 409)


def test_limits_are_read_and_set_with_a_tag(
    people: People, admin: Program, editor: Program
) -> None:
    project_id = people.project.pk
    read = editor.get("limits", project_id)
    assert read.json()["rollouts_per_day"] is None
    caps = {"rollouts_per_day": 10, "usd_per_day": None}
    problem_in(admin.send("PUT", "limits", project_id, body=caps), 428)
    put = admin.send("PUT", "limits", project_id, body=caps, If_Match=read["ETag"])
    assert put.json()["rollouts_per_day"] == 10
    problem_in(admin.send("PUT", "limits", project_id, body=caps, If_Match=read["ETag"]), 412)
    problem_in(editor.send("PUT", "limits", project_id, body=caps, If_Match=put["ETag"]), 403)


def test_the_log_names_the_token_and_is_for_admins(
    people: People, admin: Program, editor: Program
) -> None:
    project_id = people.project.pk
    admin.post("invitations", project_id, body={"role": "viewer"})
    problem_in(editor.get("audit", project_id), 403)
    entry = admin.get("audit", project_id).json()["items"][0]
    assert entry["action"] == "api:invitations"
    assert entry["token"].startswith("swb_")
    assert AuditEntry.objects.filter(username=people.owner.username).exists()


def test_a_webhook_is_made_pinged_stopped_and_removed(
    people: People, admin: Program, editor: Program, settings: Any
) -> None:
    project_id = people.project.pk
    body = {"target": "https://127.0.0.1/hook", "topics": ["run.ended"]}
    told = problem_in(admin.post("webhooks", project_id, body=body), 400)
    assert told["errors"][0]["field"] == "target"
    settings.WEBHOOK_HOSTS = ["127.0.0.1"]
    problem_in(editor.post("webhooks", project_id, body=body), 403)
    made = admin.post("webhooks", project_id, body=body).json()
    assert made["secret"].startswith("whsec_")
    assert "secret" not in admin.fetch(made["url"]).json()
    sent = [
        admin.post("webhook_ping", project_id, made["id"], Idempotency_Key="once").json()
        for _ in range(2)
    ]
    assert sent[0] == sent[1]
    assert Job.objects.filter(kind="webhooks.deliver").count() == 1
    delivery = Delivery.objects.get()
    problem_in(admin.post("delivery_replay", project_id, made["id"], delivery.pk), 409)
    Delivery.objects.update(state=DeliveryState.FAILED)
    assert admin.post("delivery_replay", project_id, made["id"], delivery.pk).status_code == 202
    assert len(admin.get("deliveries", project_id, made["id"]).json()["items"]) == 2
    stopped = admin.send("PATCH", "webhook", project_id, made["id"], body={"is_active": False})
    assert stopped.json()["is_active"] is False
    assert admin.send("DELETE", "webhook", project_id, made["id"]).status_code == 204
    assert not Webhook.objects.exists()
