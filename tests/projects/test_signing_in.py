"""Guessing a password is slow work, and locks out nobody else."""

from __future__ import annotations

from django.test import Client
from django.urls import reverse

from tests.base import PASSWORD, People


def sign_in(client: Client, name: str, password: str, address: str = "192.0.2.1") -> int:
    answer = client.post(
        reverse("login"), {"username": name, "password": password}, REMOTE_ADDR=address
    )
    return answer.status_code


def test_after_too_many_wrong_passwords_the_right_one_waits_too(
    people: People, settings: object
) -> None:
    settings.AXES_FAILURE_LIMIT = 3  # type: ignore[attr-defined]
    name = people.owner.username
    client = Client()
    assert [sign_in(client, name, "guess") for _ in range(3)] == [200, 200, 429]
    assert sign_in(client, name, PASSWORD) == 429
    page = client.post(
        reverse("login"), {"username": name, "password": PASSWORD}, REMOTE_ADDR="192.0.2.1"
    )
    assert "Too many tries" in page.content.decode()
    assert sign_in(Client(), name, PASSWORD, address="192.0.2.2") == 302
    assert sign_in(Client(), people.editor.username, PASSWORD) == 302


def test_who_gets_it_right_starts_anew(people: People, settings: object) -> None:
    settings.AXES_FAILURE_LIMIT = 3  # type: ignore[attr-defined]
    client = Client()
    for _ in range(3):
        assert sign_in(client, people.owner.username, "guess") == 200
        assert sign_in(client, people.owner.username, "guess") == 200
        assert sign_in(client, people.owner.username, PASSWORD) == 302
        client.logout()
