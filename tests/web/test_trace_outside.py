"""A trace from outside on the rollout's page: order, kinds, depth, numbers, odd characters."""

from __future__ import annotations

import html as entities
import inspect
import json
import re
import sys
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.runs.models import Rollout
from orchestrator.traces.reading import read_lines
from orchestrator.traces.services import ingest
from orchestrator.web.trace_index import depths_of
from orchestrator.web.trace_media import split_media
from tests.base import People
from tests.web.test_trace_pages import PNG

MIXED = {
    "over": "9223372036854775808",
    "exact": "123456789012345678901234567890",
    "huge": "1e309",
    "none": "NaN",
}


def event(id: str, seq: int, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "rollout": "r1",
        "id": id,
        "seq": seq,
        "kind": "observation",
        "content": content,
        **more,
    }


def take(people: People, *lines: str) -> Rollout:
    outcome = ingest(project=people.project, items=list(read_lines("\n".join(lines).encode())))
    assert not outcome.rejected
    return Rollout.objects.get(run__project=people.project)


@pytest.fixture
def client(people: People) -> Client:
    client = Client()
    client.force_login(people.owner)
    return client


def page(client: Client, rollout: Rollout, name: str = "rollout", **query: str) -> str:
    url = reverse(f"web:{name}", args=[rollout.run.project_id, rollout.pk])
    response = client.get(url, query)
    assert response.status_code == 200
    return response.content.decode()


def words(html: str) -> str:
    return entities.unescape(re.sub(r"<[^>]+>", "", html))


def test_events_stand_in_the_order_of_their_producer(client: Client, people: People) -> None:
    rollout = take(
        people,
        json.dumps(event("c", 3, "third", parent="b")),
        json.dumps(event("b", 2, "second", parent="a", kind="tool_call")),
        json.dumps(event("a", 1, "first")),
    )
    html = page(client, rollout)
    assert html.index("first") < html.index("second") < html.index("third")
    index = json.loads(page(client, rollout, "rollout_index"))
    assert index["seqs"] == [3, 2, 1]
    assert index["depths"] == "abc"
    assert set(index["kinds"]) == {"observation", "tool_call"}
    assert "second" not in words(page(client, rollout, kind="observation").split("data-cards")[1])


def test_numbers_keep_their_digits(client: Client, people: People) -> None:
    data = ", ".join(f'"{name}": {token}' for name, token in MIXED.items())
    body = f'{{"rollout": "r1", "id": "a", "seq": 1, "kind": "metric", "data": {{{data}}}}}'
    shown = words(page(client, take(people, body)))
    for token in MIXED.values():
        assert token in shown
    assert "9.223372036854776e" not in shown


def test_odd_texts_are_shown_as_what_they_are(client: Client, people: People) -> None:
    evil = "<script>alert(1)</script>\x1b[1;31mFAILED\x1b[0m \u202e end"
    line = json.dumps(
        event("a", 1, evil, name="<b onmouseover=alert(1)>x</b>", data={"<i>k": "<u>v"})
    )
    half = line.replace(" end", " \\ud83d end")
    html = page(client, take(people, half))
    assert "<script>alert" not in html and "<b onmouseover" not in html and "\u202e" not in html
    shown = words(html)
    assert "<script>alert(1)</script>FAILED U+202E \ufffd end" in shown
    assert "<i>k" in shown
    assert "\x1b" not in shown and "[1;31m" not in shown


def test_parts_are_read_as_text_and_pictures(client: Client, people: People) -> None:
    parts = [
        {"type": "text", "text": "What is on the picture?"},
        {"type": "image", "url": f"data:image/png;base64,{PNG}"},
    ]
    rollout = take(people, json.dumps(event("a", 1, parts, kind="turn")))
    html = page(client, rollout)
    assert "What is on the picture?" in html and "[image/png," in html
    assert PNG[:12] not in html and "<img " in html
    url = reverse("web:rollout_media", args=[people.project.pk, rollout.pk, 1, 0])
    assert client.get(url)["Content-Type"] == "image/png"


def test_structure_is_json_and_copy_gives_what_was_sent(client: Client, people: People) -> None:
    long = "start " + "x" * 200_000 + " end"
    rollout = take(
        people,
        json.dumps(event("a", 1, {"answer": {"total": 12.5, "items": ["x", "y"]}})),
        json.dumps(event("b", 2, long)),
    )
    html = page(client, rollout)
    assert len(html.encode()) < 300_000
    assert '"total": 12.5' in words(html) and "characters are not shown" in html
    url = reverse("web:rollout_event", args=[people.project.pk, rollout.pk, 2])
    assert client.get(url, {"as": "text"}).content.decode() == long


def test_find_reads_keys_of_no_envelope(client: Client, people: People) -> None:
    rollout = take(people, json.dumps(event("a", 1, 'say "Tiếng" \x1b[1mFAI\x1b[0mLED')))

    def find(q: str) -> list[int]:
        found: list[int] = json.loads(page(client, rollout, "rollout_find", q=q))["seqs"]
        return found

    assert find('say "tiếng"') == find("failed") == [1]
    assert find("started_at") == find("hidden_chars") == []


def test_a_very_deep_event_is_shown(client: Client, people: People) -> None:
    deep = '{"layer": ' * 450 + '"bottom"' + "}" * 450
    body = f'{{"rollout": "r1", "id": "a", "seq": 1, "kind": "x", "data": {deep}}}'
    rollout = take(people, body)
    assert "layer" in words(page(client, rollout))
    assert "layer" in page(client, rollout, "rollout_cards", seqs="1", raw="1")


def test_looking_for_pictures_takes_a_part_of_the_stack() -> None:
    deep: Any = "bottom"
    for _ in range(450):
        deep = {"layer": deep}
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 400)
    try:
        found, media = split_media(deep)
    finally:
        sys.setrecursionlimit(before)
    assert (found == deep, media) == (True, [])


def test_loops_among_parents_are_flat() -> None:
    assert depths_of({"a": "b", "b": "a", "c": "b", "d": "", "e": "d", "f": "gone"}) == {
        "a": 0,
        "b": 0,
        "c": 1,
        "d": 0,
        "e": 1,
        "f": 0,
    }
    deep = {str(i): str(i - 1) for i in range(500)}
    assert depths_of(deep)["499"] == 499
