"""A run gives every connection back: on PostgreSQL they are a dozen for a whole worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db.backends.signals import connection_created

from orchestrator.runs.models import RunState
from tests.base import People
from tests.runs.conftest import MakeModel
from tests.runs.drive import execute, make_run, make_version

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Connections that threads other than this one open."""
    found: list[Any] = []
    own = threading.get_ident()

    def note(connection: Any, **_: Any) -> None:
        if threading.get_ident() != own and connection not in found:
            found.append(connection)

    connection_created.connect(note)
    yield found
    connection_created.disconnect(note)


def test_a_run_leaves_no_connection_open(
    people: People, fault_url: str, make_model: MakeModel, opened: list[Any]
) -> None:
    version = make_version(people.project, fault_url)
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert run.state == RunState.COMPLETED
    assert opened
    assert [connection for connection in opened if connection.connection is not None] == []
