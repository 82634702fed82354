from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.events.models import Event, Stream
from orchestrator.events.search import Hit, search_events
from orchestrator.events.search_text import event_words, phrases_of, tsvector, words_of
from orchestrator.events.services import NewEvent, append, create_stream
from tests.base import make_project

pytestmark = pytest.mark.django_db


def stream_with(*texts: str) -> Stream:
    stream = create_stream(project=make_project(), kind="rollout")
    append(stream_id=stream.pk, items=[NewEvent("action", {"text": text}) for text in texts])
    return stream


def found(stream: Stream, query: str) -> list[int]:
    return [hit.seq for hit in search_events(stream.project_id, query, stream_id=stream.pk)]


def test_finds_words_phrases_and_beginnings() -> None:
    stream = stream_with("the red fox jumps", "a fox, red-handed", "nothing here")
    assert found(stream, "red fox") == [1, 2]
    assert found(stream, '"red fox"') == [1]
    assert found(stream, "JUMP*") == [1]
    assert found(stream, "jump") == []
    assert found(stream, "  ") == found(stream, "!?") == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("שלום עולם", "שלום"),
        ("Tiếng Việt", "tiếng"),
        ("今日は東京へ行きます", "東京"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("हिन्दी में", "हिन्दी"),
        ("run report_final.txt now", "report_final.txt"),
        ("run report_final.txt now", "final"),
        ("exit 12.5 done", "12.5"),
        ("x" * 5_000, "x" * 5_000),
        ("quo\"te ' or 1=1 --", "'; --or"),
    ],
)
def test_any_script_and_sign(text: str, query: str) -> None:
    assert found(stream_with(text), query) == [1]


def test_what_is_not_shown_is_not_found() -> None:
    stream = stream_with("\x1b[1;31mFAILED\x1b[0m data:image/png;base64,iVBORw0KGgo end")
    assert found(stream, "FAILED end") == [1]
    assert found(stream, "31mFAILED") == found(stream, "iVBORw0KGgo") == []


def test_projects_and_streams_are_apart() -> None:
    one, other = stream_with("needle"), stream_with("needle")
    assert search_events(one.project_id, "needle") == [Hit(one.pk, 1)]
    third = create_stream(project=one.project_id, kind="rollout")
    append(stream_id=third.pk, items=[NewEvent("action", {"text": "a needle"})])
    assert search_events(one.project_id, "needle") == [Hit(third.pk, 1), Hit(one.pk, 1)]
    assert search_events(other.project_id, "needle", stream_id=one.pk) == []


def test_what_was_written_past_the_log_is_indexed_on_request() -> None:
    stream = stream_with("first")
    Event.objects.bulk_create(
        [Event(stream=stream, seq=2, kind="action", payload={"text": "second"})]
    )
    assert found(stream, "second") == []
    call_command("index_events", verbosity=0)
    assert (found(stream, "first"), found(stream, "second")) == ([1], [2])


def test_an_emptied_log_leaves_no_word_behind() -> None:
    stream = stream_with("gone")
    Event.objects.all().delete()
    with connection.cursor() as cursor:
        table = "events_text_docsize" if connection.vendor == "sqlite" else "events_text"
        cursor.execute(f"SELECT count(*) FROM {table}")
        assert cursor.fetchone() == (0,)
    assert found(stream, "gone") == []


@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4), query=st.text(max_size=12))
def test_every_query_is_answered_as_words_say(texts: list[str], query: str) -> None:
    Event.objects.all().delete()
    stream = stream_with(*texts)
    wanted = [phrase.words for phrase in phrases_of(query) if not phrase.is_prefix]
    if len(wanted) != len(phrases_of(query)):
        return
    expected = [
        seq
        for seq, text in enumerate(texts, start=1)
        if wanted and all(holds(event_words("action", {"text": text}), words) for words in wanted)
    ]
    assert found(stream, query) == expected


def holds(words: list[str], phrase: tuple[str, ...]) -> bool:
    n = len(phrase)
    return any(tuple(words[i : i + n]) == phrase for i in range(len(words) - n + 1))


def test_limits_of_a_tsvector() -> None:
    text = tsvector([f"w{i}" for i in range(300_000)] + ["same"] * 1_000, ["p1"])
    assert len(text) < 2_500_000
    assert text.startswith("'#p1' 'w0':1 ")
    assert words_of("a" * 1_000) == ["a" * 100]
