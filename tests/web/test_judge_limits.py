"""Caps of judges on the page of models: admins set them, everybody sees what is left."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.judging.models import JudgeLimits
from tests.base import People

pytestmark = pytest.mark.django_db


def test_an_admin_sets_caps_and_the_page_shows_them(client: Client, people: People) -> None:
    client.force_login(people.owner)
    page = reverse("web:models", args=[people.project.pk])
    assert ", no cap" in client.get(page).content.decode()
    answer = client.post(
        reverse("web:judge_limits", args=[people.project.pk]),
        {"usd_per_day": "2.5", "tokens_per_day": "100000"},
    )
    assert answer.status_code == 302
    limits = JudgeLimits.objects.get()
    assert (limits.usd_per_day, limits.tokens_per_day) == (2.5, 100_000)
    shown = client.get(page).content.decode()
    assert ", no cap" not in shown and 'value="100000"' in shown
    client.post(reverse("web:judge_limits", args=[people.project.pk]), {})
    limits.refresh_from_db()
    assert (limits.usd_per_day, limits.tokens_per_day) == (None, None)


@pytest.mark.parametrize("value", ["-1", "many", "nan", "inf"])
def test_what_is_no_cap_is_refused(client: Client, people: People, value: str) -> None:
    client.force_login(people.owner)
    answer = client.post(
        reverse("web:judge_limits", args=[people.project.pk]), {"usd_per_day": value}
    )
    assert answer.status_code == 422 and not JudgeLimits.objects.exists()
    assert 'class="error"' in answer.content.decode()


def test_others_see_them_and_cannot_set_them(client: Client, people: People) -> None:
    url = reverse("web:judge_limits", args=[people.project.pk])
    for user, status in ((people.editor, 403), (people.member, 403), (people.stranger, 404)):
        client.force_login(user)
        assert client.post(url, {"tokens_per_day": "1"}).status_code == status
    client.force_login(people.editor)
    shown = client.get(reverse("web:models", args=[people.project.pk])).content.decode()
    assert "Admins of the project set the caps." in shown and url not in shown
