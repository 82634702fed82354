"""The ladder as a file that stands for itself."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.climbs.models import Climb
from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import User
from tests.base import People
from tests.web.build import make_climb

PAGES = {"climb_report"}


@pytest.fixture
def climb(people: People) -> Climb:
    climb = make_climb(people.project, name="Files | *and* <more>")
    base, harness, _ = climb.rungs.order_by("index")
    now = timezone.now()
    base.ended_at = now - timedelta(minutes=1)
    base.sentence = "Baseline: 1 of 60 sealed test tasks right."
    base.save()
    harness.ended_at = now + timedelta(minutes=1)
    harness.certificate = {
        "harness_sha256": "ab" * 32,
        "environment": "Terminal files v1",
        "environment_sha256": "cd" * 32,
        "tasks": ["test-0001", "test-0002"],
        "seed": 7,
    }
    harness.save()
    climb.advice = {"next": "weights", "reason": "training gains 0.05 per 100 rollouts"}
    climb.save()
    append(
        stream_id=climb.stream_id,
        items=[NewEvent("decision", {"text": "The harness first: its files are cheap to change."})],
    )
    return climb


def fetched(user: User, climb: Climb, form: str) -> HttpResponse:
    client = Client()
    client.force_login(user)
    url = reverse("web:climb_report", args=[climb.project_id, climb.pk, form])
    return client.get(url)  # type: ignore[return-value] # a test response is one


def test_the_page_is_one_file_that_fetches_nothing(people: People, climb: Climb) -> None:
    response = fetched(people.member, climb, "html")
    assert response["Content-Disposition"].startswith(f'attachment; filename="climb-{climb.pk}-')
    html = response.content.decode()
    assert "<script" not in html and "<link" not in html and "@import" not in html
    assert not re.search(r'(?:src|href)="(?!#)', html)
    assert not re.search(r"url\((?!#)", html)
    for text in ("certified", "0.75", "+0.73", "[+0.61, +0.84]", "2 errored", "ab" * 32):
        assert text in html
    assert "Files | *and* &lt;more&gt;" in html


def test_markdown_says_the_same_and_texts_are_only_text(people: People, climb: Climb) -> None:
    text = fetched(people.member, climb, "md").content.decode()
    assert text.startswith(r"# Files \| \*and\* \<more\>: From 2 % to 75 %, certified")
    row = next(line for line in text.splitlines() if line.startswith("| Harness |"))
    assert "better" in row and "+0.73 [+0.61, +0.84]" in row and "2 errored" in row
    # A bar inside a cell would make a tenth column.
    assert len(re.findall(r"(?<!\\)\|", row)) == 10
    assert f"`{'ab' * 32}`" in text


def test_the_decision_between_two_rungs_is_one_sentence(people: People, climb: Climb) -> None:
    text = fetched(people.member, climb, "md").content.decode()
    assert "**Before Harness:** Harness certified." in text
    assert "**Before ECHO weights:** training gains 0.05 per 100 rollouts" in text
    client = Client()
    client.force_login(people.member)
    html = client.get(reverse("web:climb", args=[climb.project_id, climb.pk])).content.decode()
    assert html.count('class="turn-row"') == 2


def test_an_overruled_advice_is_no_reason(people: People, climb: Climb) -> None:
    climb.advice = {**climb.advice, "chosen": "harness"}
    climb.save()
    text = fetched(people.member, climb, "md").content.decode()
    assert "A person overruled the advice. It was: training gains" in text


@pytest.mark.parametrize("form", ["html", "md"])
def test_strangers_get_none(people: People, climb: Climb, form: str) -> None:
    assert fetched(people.stranger, climb, form).status_code == 404
    url = reverse("web:climb_report", args=[climb.project_id, climb.pk, form])
    assert Client().get(url).status_code == 302


def test_a_climb_that_has_just_begun_has_a_report(people: People, climb: Climb) -> None:
    climb.rungs.all().delete()
    for form in ("html", "md"):
        response = fetched(people.member, climb, form)
        assert response.status_code == 200
        assert "has not measured its baseline yet" in response.content.decode()
