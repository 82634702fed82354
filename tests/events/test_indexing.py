"""Words that follow their events: late, but each once, whoever dies or deletes meanwhile."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from orchestrator.events import indexing, search_sources
from orchestrator.events.jobs import execute
from orchestrator.events.models import Event, Stream, WaitingWords
from orchestrator.events.search import search_events
from orchestrator.events.search_sources import register
from orchestrator.events.services import NewEvent, append_many, create_stream
from orchestrator.jobs.lease import claim
from orchestrator.jobs.models import Job
from orchestrator.jobs.registry import JobContext
from orchestrator.management.sweeper import sweep_round
from tests.base import make_project

pytestmark = pytest.mark.django_db


def written(*texts: str, stream: Stream | None = None) -> Stream:
    stream = stream or create_stream(project=make_project(), kind="rollout")
    items = [NewEvent("action", {"text": text}) for text in texts]
    append_many(batches={stream.pk: items}, words_later=True)
    return stream


def found(stream: Stream, query: str) -> list[int]:
    return [hit.seq for hit in search_events(stream.project_id, query, stream_id=stream.pk)]


def n_indexed() -> int:
    table = "events_text_docsize" if connection.vendor == "sqlite" else "events_text"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


def test_words_are_found_after_the_job_and_not_before() -> None:
    stream = written("the red fox", "a dog")
    written("late fox", stream=stream)
    assert (found(stream, "fox"), indexing.waiting()) == ([], 3)
    indexing.index_waiting()
    assert (found(stream, "fox"), indexing.waiting()) == ([1, 3], 0)


def test_one_job_does_for_all_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written("fox")
    indexing.ask()
    written("fox", stream=stream)
    indexing.ask()
    job = Job.objects.get(kind=indexing.JOB_KIND)
    claimed = claim(job.pk)
    assert claimed is not None
    monkeypatch.setattr("orchestrator.events.jobs.LINGER_S", 0.01)
    execute(JobContext(job.pk, {}, claimed.fence, stop=threading.Event()))
    assert found(stream, "fox") == [1, 2]


def test_more_than_one_transaction_takes() -> None:
    stream = written(*(f"fox {i}" for i in range(950)))
    assert WaitingWords.objects.count() == 10
    assert indexing.index_some()
    assert 0 < len(found(stream, "fox")) < 950
    indexing.index_waiting()
    assert len(found(stream, "fox")) == n_indexed() == 950


def test_whoever_comes_second_writes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written("fox", "dog")
    real = search_sources.words_of_events

    def overtaken(events: Any) -> Any:
        monkeypatch.setattr(indexing, "words_of_events", real)
        indexing.index_waiting()
        return real(events)

    monkeypatch.setattr(indexing, "words_of_events", overtaken)
    indexing.index_waiting()
    assert (found(stream, "fox"), n_indexed()) == ([1], 2)


def test_what_is_deleted_or_indexed_meanwhile_leaves_no_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = written("fox", "dog", "cat")
    real = search_sources.words_of_events

    def meanwhile(events: Any) -> Any:
        Event.objects.filter(stream=stream, seq=1).delete()
        call_command("index_events", verbosity=0)
        return real(events)

    monkeypatch.setattr(indexing, "words_of_events", meanwhile)
    indexing.index_some()
    assert (found(stream, "fox"), found(stream, "dog"), n_indexed()) == ([], [2], 2)


def test_the_sweep_asks_again_and_helps_where_no_worker_comes() -> None:
    stream = written("fox")
    sweep_round()
    assert Job.objects.filter(kind=indexing.JOB_KIND).count() == 1
    assert found(stream, "fox") == []
    WaitingWords.objects.update(at=timezone.now() - 2 * indexing.LATE - timedelta(seconds=1))
    sweep_round()
    assert found(stream, "fox") == [1]


def test_a_rolled_back_append_leaves_nothing_waiting() -> None:
    stream = create_stream(project=make_project(), kind="rollout")
    with transaction.atomic():
        written("fox", stream=stream)
        transaction.set_rollback(True)
    assert not WaitingWords.objects.exists()


def test_two_sources_of_one_kind_are_a_defect() -> None:
    with pytest.raises(ValueError, match="two sources"):
        register("outside", lambda events: [])
