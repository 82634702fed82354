from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.events.indexing import index_waiting
from orchestrator.events.search import search_events
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.projects.models import Role, User
from orchestrator.projects.services import issue_token
from orchestrator.runs.transcripts import transcript_of
from orchestrator.traces.exact import DEEPEST, TooDeep, dump, parse
from orchestrator.traces.models import OutsideEvent, OutsideRollout, RefusedItem
from orchestrator.traces.reading import Item, instant, read_item
from tests.base import People, make_project

pytestmark = pytest.mark.django_db


def token_of(people: People, user: User, role: Role = Role.EDITOR) -> dict[str, Any]:
    issued = issue_token(actor=user, project_id=people.project.pk, name="t", role=role)
    return {"HTTP_AUTHORIZATION": f"Bearer {issued.secret}"}


def event(**fields: Any) -> dict[str, Any]:
    return {"rollout": "r1", "id": "a", "seq": 1, "kind": "observation", "content": "ok", **fields}


def send(people: People, *events: Any, user: User | None = None) -> Any:
    user = user or people.editor
    role = Role.EDITOR if user != people.member else Role.VIEWER
    lines = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
    return Client().post(
        reverse("api:ingest", args=[people.project.pk]),
        b"\n".join(lines),
        content_type="application/x-ndjson",
        **token_of(people, user, role),
    )


def read(people: People, form: str = "json", rollout: str = "r1") -> str:
    response = Client().get(
        reverse("api:imported", args=[people.project.pk]),
        {"rollout": rollout, "as": form},
        **token_of(people, people.editor),
    )
    assert response.status_code == 200
    return response.getvalue().decode()


def test_items_are_answered_one_by_one_and_committed(people: People) -> None:
    response = send(
        people,
        event(),
        b"",
        event(),
        event(content="other"),
        b'{"rollout":"r1","id":"+\xc3("}',
        b"{nope",
        {"rollout": "r1"},
        event(id="b", seq=0),
    )
    told = response.json()
    assert (told["accepted"], told["duplicate"]) == (2, 1)
    assert [(r["index"], r["reason_kind"]) for r in told["rejected"]] == [
        (3, "id_conflict"),
        (4, "bad_encoding"),
        (5, "bad_json"),
        (6, "missing_field"),
    ]
    conflict = RefusedItem.objects.get(reason_kind="id_conflict")
    assert ("other" in conflict.body, "other" in conflict.stored_body) == (True, False)
    report = json.loads(read(people))
    assert [e["event"]["id"] for e in report["events"]] == ["b", "a"]
    assert report["html_url"].startswith("http://testserver/p/")


def test_a_list_is_taken_too_and_viewers_may_not_send(people: People) -> None:
    url = reverse("api:ingest", args=[people.project.pk])
    token = token_of(people, people.editor)
    body = json.dumps([event(), event(id="b", seq=2)])
    response = Client().post(url, body, content_type="application/json", **token)
    assert response.json()["accepted"] == 2
    bad = Client().post(url, "[1,", content_type="application/json", **token)
    assert bad.status_code == 400
    assert send(people, event(), user=people.member).status_code == 403
    other = send(people, event(id="x", project="nobody's")).json()
    assert other["rejected"][0]["reason_kind"] == "unknown_project"


def test_it_is_shown_found_graded_and_exported(people: People) -> None:
    structured = {"answer": {"total": 12.5, "items": ["x"]}}
    send(people, event(content="alpha <b>bold</b>", name="=1+1"), event(id="b", content=structured))
    owner = OutsideRollout.objects.get()
    index_waiting()
    assert [h.seq for h in search_events(people.project.pk, "bold")] == [1]
    steps = transcript_of(owner.rollout).steps
    assert json.loads(steps[1].output) == structured
    client = Client()
    client.force_login(people.member)
    place = [people.project.pk, owner.rollout_id]
    html = client.get(reverse("web:rollout", args=place)).content.decode()
    assert "alpha &lt;b&gt;bold" in html
    assert client.get(reverse("web:runs", args=[people.project.pk])).status_code == 200
    run_page = client.get(reverse("web:run", args=[people.project.pk, owner.rollout.run_id]))
    assert run_page.status_code == 200
    assert "'=1+1" in read(people, "csv")
    assert [json.loads(line)["id"] for line in read(people, "jsonl").splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "shown", "flags"),
    [
        ("2026-03-29T02:30:00", "2026-03-29T02:30:00+00:00", {"assumed_utc"}),
        ("2026-11-01T01:30:00-04:00", "2026-11-01T05:30:00+00:00", set()),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00", {"time_adjusted"}),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456+00:00", set()),
        ("next week", None, {"time_adjusted"}),
    ],
)
def test_instants(text: str, shown: str | None, flags: set[str]) -> None:
    moment, found = instant(text)
    assert (moment.isoformat() if moment else None, found) == (shown, flags)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(JSON)
def test_what_is_stored_is_what_was_sent(value: Any) -> None:
    text = json.dumps(event(data=value))
    item = read_item(0, text.encode())
    assert isinstance(item, Item)
    assert item.body.isascii()
    stored = json.loads(item.body, parse_constant=lambda token: pytest.fail(token))
    if "Infinity" not in text and "NaN" not in text:
        assert json.dumps(stored) == text
    assert parse(dump(parse(item.body))) == parse(item.body)


def test_digits_and_depth() -> None:
    numbers = "[9223372036854775808, 1e309, -0.0, 5e-324, 1.50]"
    assert dump(parse(numbers)) == '[9223372036854775808, {"$number": "1e309"}, -0.0, 5e-324, 1.50]'
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert dump(parse(deep)) == deep
    with pytest.raises(TooDeep):
        parse(f"[{deep}]")
    nested = b'{"rollout":"r","id":"a","seq":1,"kind":"k","data":' + b"[" * 2_000 + b"]" * 2_000
    refused = read_item(3, nested + b"}")
    assert getattr(refused, "reason_kind", "") == "too_deep"


def test_nothing_is_kept_twice(people: People) -> None:
    for _ in range(2):
        send(people, event(), event(id="b", rollout="r2"))
    assert OutsideEvent.objects.count() == 2


def test_words_lead_to_their_events(people: People) -> None:
    address = reverse("api:events", args=[people.project.pk])
    append(
        stream_id=create_stream(project=people.project, kind="run").pk,
        items=[NewEvent("action", {"text": "needle"})],
    )
    send(people, event(content="a needle"), event(id="b", content="hay"))
    index_waiting()
    owner = OutsideRollout.objects.get()
    token = token_of(people, people.member, Role.VIEWER)
    told = Client().get(address, {"q": "needle"}, **token).json()
    base = "http://testserver"
    page = base + reverse("web:rollout", args=[people.project.pk, owner.rollout_id])
    assert told == {
        "events": [
            {"rollout": owner.rollout_id, "seq": 1, "html_url": f"{page}#e1"},
            {"rollout": None, "seq": 1, "html_url": None},
        ],
        "has_more": False,
        "html_url": base + reverse("web:event_search", args=[people.project.pk]),
    }
    assert Client().get(address, {"q": " "}, **token).status_code == 400
    assert Client().get(address, {"q": "needle"}).status_code in (401, 403)
    elsewhere = reverse("api:events", args=[make_project().pk])
    assert Client().get(elsewhere, {"q": "needle"}, **token).status_code == 404
