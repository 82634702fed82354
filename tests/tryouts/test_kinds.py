"""Every built-in kind is played by hand: the author's reference, step by step, and kept again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from orchestrator.environments import folders
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.runs import engine
from orchestrator.tryouts import reference, services
from orchestrator.tryouts.forms import action_form
from orchestrator.tryouts.models import TryoutState
from tests.base import People
from tests.environments.conftest import needs_bubblewrap
from tests.tryouts.drive import hosting, play_of, wait_quiet, wait_state

pytestmark = [pytest.mark.django_db(transaction=True), needs_bubblewrap]


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def load(people: People, name: str) -> EnvironmentVersion:
    found = folders.read_folder(settings.BASE_DIR / "examples" / name)
    stored = folders.store(actor=people.owner, project=people.project, environment=found)
    return stored.version


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("terminal-files", {"command", "answer"}),
        ("questions", {"QaAction"}),
        ("database-mutations", {"sql", "answer", "done"}),
        ("invoices", {"get_invoice", "submit"}),
    ],
)
def test_a_reference_is_played_by_hand_and_kept_again(
    people: People, name: str, forms: set[str]
) -> None:
    version = load(people, name)
    task = version.tasks.filter(split="train", reference__isnull=False).order_by("key")[0]
    assert task.reference is not None
    tryout = services.start_tryout(
        actor=people.editor, version=version, task=task, params={"seed": 1, **task.reset}
    )
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        wait_quiet(tryout, hosted)
        labels = {v.label for v in action_form(tryout.action_schema, tryout.tools).variants}
        assert forms <= labels
        interface = reference.interface_for(tryout)
        for message in task.reference:
            if message["role"] == "assistant":
                action = interface.read(message["content"])
                assert isinstance(action, dict), message
                services.ask_step(actor=people.editor, tryout=tryout, action=action)
        play = wait_quiet(tryout, hosted)
    last = play.steps[-1].observation
    assert last is not None, play.steps[-1].failure
    assert (last["done"], last["reward"]) == (True, 1.0)
    assert reference.messages_of(play_of(tryout), interface) == task.reference
