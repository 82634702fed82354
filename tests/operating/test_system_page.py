"""The page of operators: what is wrong, what is well, who runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.environments.diagnosis import Finding
from orchestrator.operating import parts
from orchestrator.operating.parts import Watch
from orchestrator.processes.beating import Beating
from orchestrator.processes.models import Process
from orchestrator.projects.models import User
from orchestrator.web.views import system
from tests.base import People

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator", password=None))
    return client


def test_an_operator_sees_what_is_wrong_with_its_fix_and_who_runs(
    operator: Client, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Finding("workers", "warn", "no worker for gpu", "start one"),
        Finding("migrations", "fail", "3 not applied", "run migrate"),
        Finding("database", "ok", "wrote in 2 ms"),
        Finding("failed jobs", "note", "2 within the hour"),
    ]
    monkeypatch.setattr(system, "installation_findings", lambda: found)
    Beating("worker", queues=["default", "gpu"], slots=4).beat()
    gone = Beating("web")
    gone.beat()
    Process.objects.filter(key=gone.key).update(seen_at=timezone.now() - timedelta(minutes=9))

    text = operator.get(reverse("web:system", args=[people.project.pk])).content.decode()

    assert "2 things of this installation need attention" in text
    assert text.index("3 not applied") < text.index("no worker for gpu") < text.index("wrote in")
    assert "start one" in text and "2 within the hour" in text
    assert "default, gpu" in text and 'class="tag">silent' in text


def test_it_shows_what_the_doctor_finds(
    operator: Client, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "watch", Watch([parts.Part("nothing", False, lambda: "")]))

    answer = operator.get(reverse("web:system", args=[people.project.pk]))

    assert answer.status_code == 200
    assert "Queue rollouts" in answer.content.decode()


def test_advice_stands_in_its_own_column_with_commands_as_code(
    operator: Client, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> str:
        raise parts.Away("none for <gpu>", "start one: `manage.py up`")

    monkeypatch.setattr(parts, "watch", Watch([parts.Part("workers", False, away)], deadline_s=60))

    text = operator.get(reverse("web:system", args=[people.project.pk])).content.decode()

    assert 'data-label="Found">none for &lt;gpu&gt;</td>' in text
    assert 'data-label="What to do">start one: <code>manage.py up</code></td>' in text


def test_settings_lead_operators_there_and_nobody_else(operator: Client, people: People) -> None:
    url, settings = (
        reverse(name, args=[people.project.pk]) for name in ("web:system", "web:settings")
    )
    admin = Client()
    admin.force_login(people.owner)

    assert url in operator.get(settings).content.decode()
    assert url not in admin.get(settings).content.decode()
    assert admin.get(url).status_code == 403
