"""Who may read what a try-out shows, and what cannot be asked of one."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.events.access import stream_for_view
from orchestrator.tryouts import services
from orchestrator.tryouts.errors import TryoutRefused
from orchestrator.tryouts.models import Tryout
from tests.base import People
from tests.tryouts.drive import make_terminal

pytestmark = pytest.mark.django_db


def start(people: People) -> Tryout:
    version = make_terminal(people.project)
    task = version.tasks.get(key="train-0001")
    return services.start_tryout(actor=people.editor, version=version, task=task, params=task.reset)


def test_the_stream_is_for_editors(people: People) -> None:
    """It holds metadata and state, which may solve the task."""
    stream_id = start(people).stream_id
    assert stream_for_view(people.editor, stream_id).pk == stream_id
    with pytest.raises(PermissionDenied):
        stream_for_view(people.member, stream_id)
    with pytest.raises(Http404):
        stream_for_view(people.stranger, stream_id)


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_database_keeps_is_refused(people: People, text: str) -> None:
    tryout = start(people)
    with pytest.raises(TryoutRefused, match="cannot be stored"):
        services.ask_step(actor=people.editor, tryout=tryout, action={"command": text})
    with pytest.raises(TryoutRefused, match="cannot be stored"):
        services.ask_reset(actor=people.editor, tryout=tryout, params={"x": [text]})


def test_an_actor_without_the_role_is_refused_by_the_services_too(people: People) -> None:
    tryout = start(people)
    with pytest.raises(PermissionDenied):
        services.ask_undo(actor=people.member, tryout=tryout)
    with pytest.raises(PermissionDenied):
        services.close_tryout(actor=people.member, tryout=tryout)
