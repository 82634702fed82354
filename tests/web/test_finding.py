"""Search over all traces, and the page of what came from elsewhere and what was refused."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from orchestrator.events.models import Event
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.runs.models import Rollout
from orchestrator.traces.models import OutsideRollout
from orchestrator.web import event_search
from orchestrator.web.event_search import pattern_of, search_page, snippet
from tests.base import People, make_project
from tests.web.build import make_rollout, make_run, tasks_of

pytestmark = pytest.mark.django_db


def saying(people: People, *texts: str, kind: str = "action") -> Rollout:
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    append(stream_id=rollout.stream_id, items=[NewEvent(kind, {"text": text}) for text in texts])
    return rollout


def get(people: People, name: str, status: int = 200, **query: str) -> str:
    client = Client()
    client.force_login(people.member)
    answer = client.get(reverse(f"web:{name}", args=[people.project.pk]), query)
    assert answer.status_code == status
    return answer.content.decode()


def test_a_hit_shows_its_place_and_leads_to_its_event(people: People) -> None:
    rollout = saying(people, "nothing", "so Permission\x1b[1m denied\x1b[0m <here>")
    page = get(people, "event_search", q="permission denied")
    url = reverse("web:rollout", args=[people.project.pk, rollout.pk])
    assert f'href="{url}#e2"' in page and f'href="{url}#e1"' not in page
    assert "<mark>Permission</mark> <mark>denied</mark> &lt;here&gt;" in page


def test_pages_follow_one_another_without_gap_or_repeat(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_search, "PER_PAGE", 3)
    saying(people, *(f"beacon {number}" for number in range(8)))
    seen, before = [], None
    while True:
        found = search_page(people.project.pk, "beacon", before_id=before)
        seen += [row.event.seq for row in found.rows]
        before = found.next_before
        if before is None:
            break
    assert seen == [8, 7, 6, 5, 4, 3, 2, 1]


def test_a_filter_that_leaves_nothing_says_that_there_is_more(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    saying(people, "beacon", kind="observation")
    saying(people, *["beacon"] * 3)
    monkeypatch.setattr(event_search, "LOOKED_AT", 2)
    first = search_page(people.project.pk, "beacon", kind="observation")
    assert (first.rows, first.has_looked_on) == ([], True)
    second = search_page(
        people.project.pk, "beacon", kind="observation", before_id=first.next_before
    )
    assert [row.event.kind for row in second.rows] == ["observation"]


def test_other_projects_and_tryouts_are_not_found(people: People) -> None:
    other = create_stream(project=make_project(), kind="rollout")
    tryout = create_stream(project=people.project, kind="tryout")
    for stream in (other, tryout):
        append(stream_id=stream.pk, items=[NewEvent("observation", {"text": "beacon"})])
    assert "No event holds all of these words" in get(people, "event_search", q="beacon")


def test_empty_states_name_the_next_action(people: People) -> None:
    assert "What are you looking for?" in get(people, "event_search")
    assert "There is no word in this" in get(people, "event_search", q="!?")
    assert "Search all kinds" in get(people, "event_search", q="beacon", kind="action")
    assert "Nothing was refused" in get(people, "imports")


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("fox", "a foxtrot, a fox", ["fox"]),
        ("fox*", "a foxtrot", ["fox"]),
        ('"red fox"', "red, red-fox", ["red-fox"]),
        ("東京", "今日は東京へ", ["東京"]),
        ("STRASSE", "in der Strasse", ["Strasse"]),
        ("gone", "is not there", []),
    ],
)
def test_what_is_marked_is_what_was_asked_for(query: str, text: str, marked: list[str]) -> None:
    event = SimpleNamespace(kind="action", payload={"text": text})
    parts = snippet(event, pattern_of(query))
    assert [part for part, is_hit in parts if is_hit] == marked
    assert "".join(part for part, _ in parts) == text


def test_a_long_text_is_shown_around_its_hit(people: People) -> None:
    event = SimpleNamespace(kind="action", payload={"text": "a " * 900 + "beacon" + " b" * 900})
    parts = snippet(event, pattern_of("beacon"))
    assert (parts[0][0], parts[2], parts[-1][0]) == ("…", ("beacon", True), "…")
    assert len("".join(text for text, _ in parts)) < 300


# Traces from elsewhere

LINE = {"rollout": "r", "id": "a", "seq": 1, "kind": "turn", "content": "<b>hi"}


def upload(people: People, content: bytes, name: str = "t.jsonl") -> Client:
    client = Client()
    client.force_login(people.editor)
    client.post(
        reverse("web:imports", args=[people.project.pk]),
        {"file": SimpleUploadedFile(name, content)},
    )
    return client


def test_a_file_leads_to_its_trace(people: People) -> None:
    client = Client()
    client.force_login(people.editor)
    answer = client.post(
        reverse("web:imports", args=[people.project.pk]),
        {"file": SimpleUploadedFile("t.jsonl", json.dumps(LINE).encode())},
        follow=True,
    )
    page = answer.content.decode()
    assert "1 events taken in." in page and "&lt;b&gt;hi" in page


def test_refused_items_are_listed_with_both_bodies(people: People) -> None:
    lines = [LINE, {**LINE, "content": "<i>other"}, {"rollout": "r"}]
    upload(people, "\n".join(map(json.dumps, lines)).encode())
    page = get(people, "imports")
    assert "other content under a known id" in page and "a field is missing" in page
    assert "&lt;i&gt;other" in page and "&lt;b&gt;hi" in page
    only = get(people, "imports", reason="missing_field")
    assert len(re.findall(r'<tr id="i', only)) == 1
    assert "2 were for others" in get(people, "imports", reason="too_deep")


def test_a_file_that_is_no_trace_says_why(people: People) -> None:
    client = Client()
    client.force_login(people.editor)
    url = reverse("web:imports", args=[people.project.pk])
    answer = client.post(url, {"file": SimpleUploadedFile("x.json", b"{")})
    assert (answer.status_code, "is no JSON" in answer.content.decode()) == (422, True)
    assert client.post(url).status_code == 422
    assert not OutsideRollout.objects.exists() and not Event.objects.exists()


def test_viewers_see_and_do_not_bring(people: People) -> None:
    client = Client()
    client.force_login(people.member)
    url = reverse("web:imports", args=[people.project.pk])
    answer = client.post(url, {"file": SimpleUploadedFile("t.jsonl", json.dumps(LINE).encode())})
    assert answer.status_code == 403
    assert "Ask an admin" in get(people, "imports")
