from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.events.models import Event, Stream
from orchestrator.events.queries import events_after
from orchestrator.events.services import (
    Fence,
    LeaseLost,
    NewEvent,
    append,
    append_many,
    create_stream,
    hold_fence,
    storable,
)
from orchestrator.jobs.lease import claim, finish
from orchestrator.jobs.models import Job
from orchestrator.jobs.services import enqueue
from tests.base import make_project


def stream() -> Stream:
    return create_stream(project=make_project(), kind="run")


def items(n: int) -> list[NewEvent]:
    return [NewEvent("tick", {"i": i}) for i in range(n)]


def running_job() -> tuple[Job, Fence]:
    claimed = claim(enqueue(kind="fault.raise", spec={}).pk)
    assert claimed is not None
    return claimed.job, claimed.fence


@pytest.mark.django_db
def test_sequences_have_no_gap() -> None:
    log = stream()
    assert append(stream_id=log.pk, items=items(3)) == 3
    assert append(stream_id=log.pk, items=items(2)) == 5
    assert append(stream_id=log.pk, items=[]) == 5
    assert [event.seq for event in events_after(log.pk, 0)] == [1, 2, 3, 4, 5]
    assert [event.seq for event in events_after(log.pk, 2, limit=2)] == [3, 4]


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_append_leaves_no_hole() -> None:
    log = stream()
    append(stream_id=log.pk, items=items(1))
    with transaction.atomic():
        append(stream_id=log.pk, items=items(4))
        transaction.set_rollback(True)
    assert append(stream_id=log.pk, items=items(1)) == 2


@pytest.mark.django_db(transaction=True)
def test_an_older_attempt_writes_nothing_to_any_stream() -> None:
    first, second = stream(), stream()
    job, fence = running_job()
    append_many(batches={second.pk: items(1), first.pk: items(2)}, fence=fence)
    Job.objects.filter(pk=job.pk).update(attempt=2)
    with pytest.raises(LeaseLost):
        append_many(batches={first.pk: items(1), second.pk: items(1)}, fence=fence)
    assert Event.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_a_finished_job_writes_nothing_more() -> None:
    log = stream()
    _, fence = running_job()
    assert finish(fence)
    with pytest.raises(LeaseLost):
        append(stream_id=log.pk, items=items(1), fence=fence)


@pytest.mark.django_db(transaction=True)
def test_a_fence_outside_a_transaction_is_a_mistake() -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        hold_fence(Fence(job_id=1, attempt=1))


@pytest.mark.django_db
def test_an_unknown_stream_is_refused() -> None:
    with pytest.raises(Stream.DoesNotExist):
        append(stream_id=999, items=items(1))


@pytest.mark.django_db(transaction=True)
def test_writers_of_one_stream_share_its_sequence() -> None:
    log = stream()

    def write() -> None:
        for _ in range(20):
            append(stream_id=log.pk, items=items(2))
        connection.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [event.seq for event in events_after(log.pk, 0)] == list(range(1, 161))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object()])
def test_a_payload_that_is_no_json_names_its_event(bad: Any) -> None:
    with pytest.raises(ValueError, match="reward"):
        storable(NewEvent("reward", {"value": bad}))


_text = st.text(st.characters(categories=["L", "Cc", "Cs", "So"]), max_size=8)


@given(st.dictionaries(_text, _text | st.integers() | st.lists(_text, max_size=3), max_size=3))
def test_text_stays_as_it_is_but_for_what_no_database_stores(payload: dict[str, Any]) -> None:
    def cleaned(value: Any) -> Any:
        if isinstance(value, str):
            return "".join(
                "\ufffd" if c == "\x00" or 0xD800 <= ord(c) <= 0xDFFF else c for c in value
            )
        return [cleaned(part) for part in value] if isinstance(value, list) else value

    expected = {cleaned(key): cleaned(value) for key, value in payload.items()}
    assert json.loads(storable(NewEvent("x", payload))) == expected


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["a\x00b", "\ud800 alone", "😀 und ß"])
def test_what_a_model_may_write_can_be_stored(text: str) -> None:
    log = stream()
    append(stream_id=log.pk, items=[NewEvent("reply", {"text": text})])
    (event,) = events_after(log.pk, 0)
    assert len(event.payload["text"]) == len(text)
