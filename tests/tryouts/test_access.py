"""Who may read what a try-out shows, and what cannot be asked of one."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.events.access import stream_for_view
from orchestrator.tryouts import services
from orchestrator.tryouts.errors import TryoutRefused
from orchestrator.tryouts.limits import MOST_PENDING
from orchestrator.tryouts.models import Tryout
from orchestrator.tryouts.queries import pending_commands
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


def test_what_has_ended_meanwhile_takes_no_command(people: People) -> None:
    tryout = start(people)
    seen_open = Tryout.objects.get(pk=tryout.pk)
    services.close_tryout(actor=people.editor, tryout=tryout)
    with pytest.raises(TryoutRefused, match="not open any more"):
        services.ask_step(actor=people.editor, tryout=seen_open, action={"command": "ls"})
    assert not pending_commands(tryout.pk)


def test_more_than_a_few_commands_do_not_wait(people: People) -> None:
    tryout = start(people)
    for _ in range(MOST_PENDING - 1):  # the reset waits already
        services.ask_state(actor=people.editor, tryout=tryout)
    with pytest.raises(TryoutRefused, match=f"{MOST_PENDING} commands are waiting"):
        services.ask_undo(actor=people.editor, tryout=tryout)
    assert len(pending_commands(tryout.pk)) == MOST_PENDING
