"""The pages of gates: what they claim, for whom, and in which states."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.gates.models import Gate
from orchestrator.projects.models import User
from tests.base import People
from tests.gates.build import make_gate, played, worth
from tests.searches.playing import play

pytestmark = pytest.mark.django_db


def html_of(user: User, gate: Gate, name: str = "web:gate") -> str:
    client = Client()
    client.force_login(user)
    args = [gate.project_id] if name == "web:gates" else [gate.project_id, gate.pk]
    response = client.get(reverse(name, args=args))
    assert response.status_code == 200
    return response.content.decode()


def test_a_gate_shows_its_claim_and_every_look(people: People) -> None:
    gate = played(people, worth(0.1, 0.9))
    html = html_of(people.member, gate)
    assert "The change is better" in html
    assert html.count("not needed") == 5 - len(gate.decisions)
    assert "Cancel gate" not in html
    listed = html_of(people.member, gate, "web:gates")
    assert "Think first" in listed and "better" in listed


def test_what_is_inconclusive_says_what_would_decide(people: People) -> None:
    gate = played(people, worth(0.4, 0.5), policy={"rollouts": 96})
    assert gate.verdict == "inconclusive"
    html = html_of(people.member, gate)
    assert "No clear difference" in html
    assert "would decide it" in html or "tasks</b> would" in html


def test_infrastructure_says_nothing_of_the_change(people: People) -> None:
    gate = played(people, lambda harness, rollout: None)
    html = html_of(people.editor, gate)
    assert "Nothing is said of the change" in html
    assert "Without a score" in html


def test_a_gate_at_work_can_be_cancelled_by_editors(people: People) -> None:
    gate = make_gate(people, source={"url": "https://git.example/7", "branch": "<b>x"})
    assert "Cancel gate" not in html_of(people.member, gate)
    html = html_of(people.editor, gate)
    assert "Cancel gate" in html and "Waits for a worker" in html
    assert "&lt;b&gt;x" in html
    client = Client()
    client.force_login(people.editor)
    client.post(reverse("web:gate_cancel", args=[gate.project_id, gate.pk]))
    gate.refresh_from_db()
    assert gate.state == "cancelled"
    play(worth(0.5, 0.5))
    assert "Cancelled without a verdict" in html_of(people.member, gate)


def test_an_empty_list_names_the_next_step(people: People) -> None:
    client = Client()
    client.force_login(people.owner)
    html = client.get(reverse("web:gates", args=[people.project.pk])).content.decode()
    assert "No gate yet" in html and "switchback gate" in html


def test_the_list_takes_few_queries(people: People, django_assert_max_num_queries: object) -> None:
    for number in range(5):
        make_gate(people, name=f"PR {number}")
    client = Client()
    client.force_login(people.member)
    url = reverse("web:gates", args=[people.project.pk])
    client.get(url)
    with django_assert_max_num_queries(16):  # type: ignore[operator]
        client.get(url)
