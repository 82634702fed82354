"""Alarms of the watch where people look: ladder, training, status bar; acknowledged by a person."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orchestrator.climbs.models import Climb
from orchestrator.grading.models import HackingAlarm
from tests.base import People, make_people
from tests.web.build import make_climb, make_rollout, make_run, make_training_job, tasks_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> People:
    return make_people()


def make_alarm(climb: Climb, **changes: Any) -> HackingAlarm:
    run = make_run(climb.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    fields: dict[str, Any] = {
        "signal": "gap",
        "level": "pause",
        "value": 0.31,
        "detail": {
            "subject": "",
            "sentence": "The training rubric pays 0.40 more; at first <b>it was</b> 0.09.",
            "low": 0.12,
            "high": 0.5,
            "before": 0.09,
            "after": 0.4,
            "n_before": 16,
            "n_after": 18,
            "rollouts": [rollout.pk],
        },
        **changes,
    }
    return HackingAlarm.objects.create(project=climb.project, climb=climb, run=run, **fields)


def text_of(user: Any, path: str) -> str:
    client = Client()
    client.force_login(user)
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_an_alarm_stands_on_every_page_that_it_concerns(people: People) -> None:
    job = make_training_job(people.project)
    climb = make_climb(people.project, state="paused", training_job=job)
    alarm = make_alarm(climb)
    base = f"/p/{people.project.pk}"
    for path in (f"{base}/ladder/{climb.pk}/", f"{base}/train/{job.pk}/", f"{base}/ladder/"):
        text = text_of(people.editor, path)
        assert "it and the held-out rubric come apart" in text
        assert "+0.31" in text
        assert f"/rollouts/{alarm.detail['rollouts'][0]}/" in text
        assert "&lt;b&gt;it was" in text
        assert "Acknowledge" in text
    assert "Acknowledge and resume" in text_of(people.editor, f"{base}/ladder/{climb.pk}/")
    assert "1 alarm: a rubric may be gamed" in text_of(people.member, f"{base}/")
    assert "Acknowledge" not in text_of(people.member, f"{base}/ladder/{climb.pk}/")


def test_acknowledged_it_is_quiet_and_still_there(people: People) -> None:
    climb = make_climb(people.project, state="paused")
    alarm = make_alarm(climb)
    path = f"/p/{people.project.pk}/ladder/{climb.pk}/"
    client = Client()
    for user, status in ((people.member, 403), (people.stranger, 404), (people.editor, 302)):
        client.force_login(user)
        answer = client.post(f"{path}alarms/{alarm.pk}/acknowledge/")
        assert answer.status_code == status
    text = text_of(people.editor, path)
    assert f"Seen by {people.editor.username}" in text
    assert "Acknowledge" not in text
    assert "may be gamed" not in text_of(people.editor, f"/p/{people.project.pk}/")
    assert client.post(f"{path}alarms/999/acknowledge/").status_code == 404


@pytest.mark.parametrize(
    ("signal", "subject", "said"),
    [
        ("criterion", "Polite", "its criteria come apart"),
        ("length", "steps", "Rollouts grow longer"),
        ("length", "answer", "Answers grow longer"),
        ("format", "JSON", "Answers take another form"),
    ],
)
def test_each_signal_has_its_words(people: People, signal: str, subject: str, said: str) -> None:
    climb = make_climb(people.project)
    alarm = make_alarm(climb, signal=signal, level="warn")
    alarm.detail["subject"] = subject
    alarm.save()
    text = text_of(people.member, f"/p/{people.project.pk}/ladder/{climb.pk}/")
    assert said in text
    assert "warning" in text
