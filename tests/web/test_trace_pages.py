"""What the page of a rollout asks for: windows of its trace, outline, finds, events, pictures."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from orchestrator.events.services import NewEvent, append
from orchestrator.jobs.models import Job
from orchestrator.runs.models import Rollout, Run
from orchestrator.web.trace_page import FIRST_EVENTS
from tests.base import People
from tests.web.build import (
    ACTION,
    make_rollout,
    make_run,
    make_trace,
    observation,
    started,
    tasks_of,
)

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAE"
    "hQGAhKmMIQAAAABJRU5ErkJggg=="
)


@pytest.fixture
def rollout(people: People) -> Rollout:
    run = make_run(people.project)
    return make_rollout(run, tasks_of(run)[0])


@pytest.fixture
def client(people: People) -> Client:
    client = Client()
    client.force_login(people.member)
    return client


def address(name: str, rollout: Rollout, *more: int) -> str:
    return reverse(f"web:{name}", args=[rollout.run.project_id, rollout.pk, *more])


def get(client: Client, name: str, rollout: Rollout, *more: int, **query: Any) -> str:
    response = client.get(address(name, rollout, *more), query)
    assert response.status_code == 200
    return response.content.decode()


def fill(rollout: Rollout, n: int, text: str = "three lines") -> None:
    items = [started(), *(observation(("env_output", f"{text} {i}\n")) for i in range(1, n))]
    append(stream_id=rollout.stream_id, items=items)


def test_a_first_answer_holds_few_events_and_the_skeleton_of_all(
    client: Client, rollout: Rollout
) -> None:
    fill(rollout, 3_000, text="x" * 900)
    html = get(client, "rollout", rollout)
    assert html.count('class="slot"') == FIRST_EVENTS
    assert len(html.encode()) < 300_000
    skeleton = client.get(address("rollout_index", rollout)).json()
    assert len(skeleton["codes"]) == len(skeleton["sizes"]) == 3_000
    assert skeleton["kinds"] == ["rollout.started", "observation"]
    assert "3,000" in html


def test_a_first_answer_stays_small_whatever_the_events_hold(
    client: Client, rollout: Rollout
) -> None:
    evil = "\u202e\u200b" * 40_000
    items = [NewEvent("action", {**ACTION, "text": evil, "command": evil}) for _ in range(20)]
    append(stream_id=rollout.stream_id, items=[started(), *items])
    assert len(get(client, "rollout", rollout).encode()) < 300_000


def test_a_page_asks_as_often_for_a_long_trace_as_for_a_short_one(
    client: Client, rollout: Rollout
) -> None:
    fill(rollout, 5)
    asked = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            get(client, "rollout", rollout)
        asked.append(len(captured))
        append(
            stream_id=rollout.stream_id,
            items=[observation(("env_output", f"{i}\n")) for i in range(200)],
        )
    assert asked[0] == asked[1]


def test_a_window_comes_in_the_order_asked_for(client: Client, rollout: Rollout) -> None:
    fill(rollout, 20)
    html = get(client, "rollout_cards", rollout, seqs="12,3-4,99,x")
    assert [part.split('"')[0] for part in html.split('data-slot="')[1:]] == ["12", "3", "4"]


def test_a_long_output_is_cut_to_some_lines_until_all_are_asked_for(
    client: Client, rollout: Rollout
) -> None:
    text = "".join(f"line {i}\n" for i in range(412))
    append(stream_id=rollout.stream_id, items=[started(), observation(("env_output", text))])
    short = get(client, "rollout_cards", rollout, seqs="2")
    assert "20 of 412 lines shown" in short and "line 400" not in short
    whole = get(client, "rollout_cards", rollout, seqs="2", whole="1")
    assert "line 411" in whole and "lines shown" not in whole


def test_a_verdict_stands_at_the_event_that_it_cites(client: Client, rollout: Rollout) -> None:
    make_trace(rollout)
    cited, other = get(client, "rollout_cards", rollout, seqs="3,2").split('data-slot="2"')
    assert "cited-by" in cited and "The answer is right" in cited
    assert "cited-by" not in other


def test_find_reads_what_is_shown(client: Client, rollout: Rollout) -> None:
    append(
        stream_id=rollout.stream_id,
        items=[
            started(),
            observation(("env_output", "\x1b[1;31mFAI\x1b[0mLED 3 tests")),
            observation(("env_output", 'say "Tiếng Việt" 12.5')),
            NewEvent("novel", {"deep": [{"total": 12.5, "text": "100% sure_thing"}]}),
        ],
    )

    def find(q: str) -> list[int]:
        found: list[int] = client.get(address("rollout_find", rollout), {"q": q}).json()["seqs"]
        return found

    assert find("failed") == [2]
    assert find("31mFAILED") == []
    assert find('say "TIẾNG') == [3]
    assert find("12.5") == [3, 4]
    assert find("0% sure_") == [4]
    assert find("segments") == find("") == find("  ") == []


def test_kinds_are_chosen_without_scripts_too(client: Client, rollout: Rollout) -> None:
    make_trace(rollout)
    html = get(client, "rollout", rollout, kind="verdict")
    assert 'data-slot="4"' in html and 'data-slot="3"' not in html
    assert 'value="verdict" checked' in html


def test_pages_are_turned_without_scripts(client: Client, rollout: Rollout) -> None:
    fill(rollout, 100)
    html = get(client, "rollout", rollout)
    assert f'href="?from={FIRST_EVENTS + 1}"' in html
    html = get(client, "rollout", rollout, **{"from": FIRST_EVENTS + 1})
    assert f'data-slot="{FIRST_EVENTS + 1}"' in html and 'data-slot="2"' not in html
    for odd in ("9999", "x", "-1", "9" * 40, "²"):
        assert 'class="slot"' in get(client, "rollout", rollout, **{"from": odd})


def test_raw_shows_the_event_as_it_is_stored(client: Client, rollout: Rollout) -> None:
    make_trace(rollout)
    html = get(client, "rollout_cards", rollout, seqs="2", raw="1")
    assert "finish_reason" in html
    assert "finish_reason" in get(client, "rollout_event", rollout, 2, **{"as": "raw"})


def test_an_event_is_copied_and_downloaded_as_stored(client: Client, rollout: Rollout) -> None:
    make_trace(rollout)
    assert get(client, "rollout_event", rollout, 2, **{"as": "text"}) == "wc -l list1.txt"
    response = client.get(address("rollout_event", rollout, 3), {"download": ""})
    assert response.json()["payload"]["segments"][0]["text"] == "3 list1.txt\n"
    assert "attachment" in response["Content-Disposition"]
    assert client.get(address("rollout_event", rollout, 99)).status_code == 404


def test_pictures_are_thumbnails_and_never_text(client: Client, rollout: Rollout) -> None:
    parts = [
        {"type": "image", "url": f"data:image/png;base64,{PNG}"},
        {"type": "image", "source": {"media_type": "image/png", "data": PNG}},
        {"type": "image", "url": "data:image/svg+xml;base64,PHN2Zz48L3N2Zz4="},
    ]
    append(stream_id=rollout.stream_id, items=[started(), NewEvent("turn", {"content": parts})])
    html = get(client, "rollout_cards", rollout, seqs="2")
    assert PNG[:12] not in html and "PHN2" not in html
    assert html.count("<img ") == 2 and "not drawn" in html
    picture = client.get(address("rollout_media", rollout, 2, 0))
    assert picture["Content-Type"] == "image/png"
    assert picture.content == base64.b64decode(PNG)
    drawing = client.get(address("rollout_media", rollout, 2, 2))
    assert drawing["Content-Type"] == "application/octet-stream"
    assert "attachment" in drawing["Content-Disposition"]
    assert client.get(address("rollout_media", rollout, 2, 3)).status_code == 404


def test_a_stranger_sees_no_picture(people: People, rollout: Rollout) -> None:
    client = Client()
    assert client.get(address("rollout_media", rollout, 2, 0)).status_code == 302
    client.force_login(people.stranger)
    assert client.get(address("rollout_media", rollout, 2, 0)).status_code == 404


def test_an_odd_request_is_answered(client: Client, rollout: Rollout) -> None:
    make_trace(rollout)
    for seqs in ("", ",", "1-", "5-1", "1-999999999", "0", "9" * 30):
        get(client, "rollout_cards", rollout, seqs=seqs)
        get(client, "rollout_outline", rollout, seqs=seqs)


def test_a_trace_whose_producer_is_lost_says_so(people: People) -> None:
    run = make_run(people.project, state="running")
    rollout = make_rollout(run, tasks_of(run)[0], state="running")
    append(stream_id=rollout.stream_id, items=[started()])
    later = timezone.now() + timedelta(minutes=1)
    job = Job.objects.create(kind="run.execute", state="running", lease_until=later)
    Run.objects.filter(pk=run.pk).update(job=job)
    client = Client()
    client.force_login(people.member)
    url = reverse("web:rollout", args=[people.project.pk, rollout.pk])
    assert b"Producer lost" not in client.get(url).content
    Job.objects.filter(pk=job.pk).update(lease_until=timezone.now() - timedelta(minutes=1))
    assert b"Producer lost" in client.get(url).content
    Job.objects.filter(pk=job.pk).update(state="queued")
    assert b"Producer lost" not in client.get(url).content
