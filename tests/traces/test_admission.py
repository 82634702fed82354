"""Back-pressure of ingest: who is turned away is told when to come again, and has lost nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.api.admission import Busy, Room, _room
from orchestrator.events.indexing import index_waiting
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from orchestrator.traces.models import OutsideEvent
from tests.base import People

LIMITS = {"requests": 2, "most_bytes": 100}


def test_room_is_for_requests_and_for_their_bytes() -> None:
    room = Room()
    with room.taken(1_000, **LIMITS), pytest.raises(Busy), room.taken(1, **LIMITS):
        pass
    with room.taken(10, **LIMITS), room.taken(90, **LIMITS):
        with pytest.raises(Busy) as refused, room.taken(0, **LIMITS):
            pass
        assert (refused.value.status_code, refused.value.wait) == (429, 1)
    assert (room.n_requests, room.n_bytes) == (0, 0)


def test_a_body_that_opened_into_more_counts_as_that() -> None:
    room = Room()
    with room.taken(10, **LIMITS) as counted:
        counted(95)
        with pytest.raises(Busy), room.taken(10, **LIMITS):
            pass
        counted(20)
        with room.taken(10, **LIMITS):
            pass
    assert (room.n_requests, room.n_bytes) == (0, 0)


@pytest.mark.django_db
def test_a_full_process_and_a_late_index_turn_away(people: People, settings: Any) -> None:
    settings.INGEST_REQUESTS, settings.INGEST_BACKLOG = 1, 1
    issued = issue_token(
        actor=people.editor, project_id=people.project.pk, name="t", role=Role.EDITOR
    )

    def send(first: int) -> Any:
        lines = [
            f'{{"rollout": "r", "id": "{n}", "seq": {n}, "kind": "k"}}' for n in (first, first + 1)
        ]
        return Client().post(
            reverse("api:ingest", args=[people.project.pk]),
            "\n".join(lines),
            content_type="application/x-ndjson",
            headers={"Authorization": f"Bearer {issued.secret}"},
        )

    with _room.taken(1, requests=1, most_bytes=10):
        full = send(1)
    assert (full.status_code, full["Retry-After"]) == (429, "1")
    assert "SWITCHBACK_INGEST_REQUESTS" in full.json()["detail"]
    assert not OutsideEvent.objects.exists()
    assert send(1).json()["accepted"] == 2
    late = send(3)
    assert (late.status_code, late["Retry-After"]) == (429, "5")
    index_waiting()
    assert send(3).json()["accepted"] == 2
