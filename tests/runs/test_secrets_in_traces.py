"""A key that a model server quotes back is in no trace, no page, no export and no log."""

from __future__ import annotations

import json
import logging

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.events.models import Event
from orchestrator.projects.secrets import encrypt
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.doubles.model_server import Asked, Raw, Reply
from tests.runs.conftest import MakeModel
from tests.runs.drive import execute, make_endpoint, make_run, make_version

CANARY = "sk-canary-4f0c8d21"

pytestmark = pytest.mark.django_db(transaction=True)


def quotes_the_key(asked: Asked) -> str | Reply | Raw:
    """The first task's model says it, the second's refusal, the third's echo of the request."""
    prompt = next(content for _, content in asked.messages if content.startswith("Task "))
    if "Task 0" in prompt:
        return Reply(json.dumps({"value": 0, "note": f"my key is {CANARY}"}))
    refusal = {"error": {"message": f"Incorrect API key provided: {CANARY}", "code": "bad_key"}}
    text = json.dumps(refusal) if "Task 1" in prompt else f"Authorization: Bearer {CANARY}"
    return Raw(status=401, text=text, headers={"X-Echo": f"Bearer {CANARY}"})


def test_a_key_that_is_quoted_back_is_kept_nowhere(
    people: People, fault_url: str, make_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(quotes_the_key)
    endpoint = make_endpoint(
        people.project, model.url, kind=EndpointKind.LOCAL, secret=encrypt(CANARY)
    )
    run = make_run(people.project, version=make_version(people.project, fault_url), model=endpoint)
    with caplog.at_level(logging.DEBUG):
        execute(run)
    # The words around the key are there, so the test reads what it means to read.
    kept = json.dumps([event.payload for event in Event.objects.all()])
    assert "Incorrect API key provided: [API key]" in kept
    assert "my key is [API key]" in kept
    client = Client()
    client.force_login(people.owner)
    seen = [kept, caplog.text, str(list(Rollout.objects.values()))]
    for rollout in Rollout.objects.filter(run=run):
        for name in ("rollout", "rollout_jsonl", "rollout_index"):
            answer = client.get(reverse(f"web:{name}", args=[people.project.pk, rollout.pk]))
            body = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[attr-defined]
            seen.append(body.decode())
    seen.append(client.get(reverse("web:run", args=[people.project.pk, run.pk])).content.decode())
    seen.append(client.get(reverse("web:models", args=[people.project.pk])).content.decode())
    seen.append(str(list(ModelEndpoint.objects.values())))
    assert not [text for text in seen if CANARY in text]
