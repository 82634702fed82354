"""The pages of try-outs by HTTP: who may, what is sealed, what a form sends. No worker."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orchestrator.environments.models import Environment, EnvironmentKind
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import User
from orchestrator.tryouts.models import CommandKind, Tryout, TryoutState
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import People, add_member, make_user
from tests.runs.drive import make_rubric
from tests.tryouts.drive import make_terminal

pytestmark = pytest.mark.django_db

SCHEMA = {
    "type": "object",
    "oneOf": [{"required": ["command"]}, {"required": ["answer"]}],
    "properties": {
        "metadata": {"type": "object"},
        "command": {"type": "string", "maxLength": 2000},
        "answer": {"type": "string"},
    },
}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def base(people: People) -> str:
    return f"/p/{people.project.pk}/environments/files/try/"


def start(people: People, **fields: Any) -> Tryout:
    data = {"version": "1", "task": "train-0001", "seed": "5", **fields}
    reply = signed_in(people.editor).post(base(people), data)
    assert reply.status_code == 302, reply.content.decode()[:3000]
    return Tryout.objects.latest("id")


def test_no_rubric_of_another_environment_is_proposed(people: People) -> None:
    make_terminal(people.project)
    client = signed_in(people.editor)
    url = base(people) + "?version=1&task=train-0001"
    only = make_rubric(people.project)
    assert client.get(url).context["chosen_rubric"] == only.pk
    Rubric.objects.filter(pk=only.rubric_id).update(name="another")
    other = Rubric.objects.create(project=people.project, name="a third")
    create_rubric_version(rubric=other, spec=only.spec)
    page = client.get(url)
    assert page.context["chosen_rubric"] is None
    assert b" selected" not in page.content.partition(b'id="rubric"')[2].partition(b"</select>")[0]
    own = Rubric.objects.create(project=people.project, name="files")
    version = create_rubric_version(rubric=own, spec=only.spec)
    assert client.get(url).context["chosen_rubric"] == version.pk


def test_what_holds_the_last_slots_is_a_click_away(people: People) -> None:
    client = signed_in(people.editor)
    for slug in ("one", "two", "files"):
        make_terminal(people.project, slug=slug)
    holding = []
    for slug in ("one", "two"):
        url = base(people).replace("/files/", f"/{slug}/")
        holding.append(client.post(url, {"version": "1", "task": "train-0001"})["Location"])
    refused = client.post(base(people), {"version": "1", "task": "train-0001"})
    assert refused.status_code == 422
    html = refused.content.decode()
    assert "2 of 2 try-outs of this project are open" in html
    for address in holding:
        assert f'href="{address}"' in html


def opened(people: People, **fields: Any) -> Tryout:
    """As its worker has it after the reset."""
    tryout = start(people, **fields)
    Tryout.objects.filter(pk=tryout.pk).update(state=TryoutState.OPEN, action_schema=SCHEMA)
    append(
        stream_id=tryout.stream_id,
        items=[NewEvent("tryout.reset", {**observed(0), "params": {"seed": 5}})],
    )
    tryout.refresh_from_db()
    return tryout


def observed(step: int, *, reward: float | None = None, done: bool = False) -> dict[str, Any]:
    return {
        "step": step,
        "segments": [{"kind": "env_output", "text": f"seen-{step}"}],
        "observation": '{"text": "raw"}',
        "metadata": "",
        "size_bytes": 20,
        "is_shortened": False,
        "digests": {"text": "1"},
        "reward": reward,
        "done": done,
        "exit_status": None,
        "latency_s": 0.01,
    }


def play(tryout: Tryout, *actions: dict[str, str], reward: float = 1.0) -> None:
    """Steps as their events; the last ends the episode."""
    for number, action in enumerate(actions, 1):
        done = number == len(actions)
        append(
            stream_id=tryout.stream_id,
            items=[
                NewEvent("tryout.action", {"step": number, "action": action}),
                NewEvent(
                    "tryout.observation",
                    observed(number, reward=reward if done else None, done=done),
                ),
            ],
        )


def ask(people: People, tryout: Tryout, what: str, **data: str) -> Any:
    return signed_in(people.editor).post(
        f"{base(people)}{tryout.pk}/{what}/", data, headers={"accept": "application/json"}
    )


def test_a_start_resets_with_the_tasks_parameters_and_the_seed(people: People) -> None:
    make_terminal(people.project)
    rubric = make_rubric(people.project)
    tryout = start(people, rubric=str(rubric.pk), extra='{"level": 2}')
    (command,) = tryout.commands.all()
    assert command.kind == CommandKind.RESET
    assert command.payload == {"params": {"task": "train-0001", "seed": 5, "level": 2}}
    assert tryout.rubric_version == rubric
    page = signed_in(people.editor).get(f"{base(people)}{tryout.pk}/")
    assert "list.txt: number of lines" in page.content.decode()


def test_what_was_typed_wrongly_is_said_and_kept(people: People) -> None:
    make_terminal(people.project)
    data = {"version": "1", "task": "train-0001", "seed": "-1", "extra": "[2]"}
    reply = signed_in(people.editor).post(base(people), data)
    text = reply.content.decode()
    assert reply.status_code == 422
    assert "a whole number from 0 is needed" in text
    assert "a JSON object is needed" in text
    assert 'value="-1"' in text
    assert not Tryout.objects.exists()


def test_only_editors_play(people: People) -> None:
    make_terminal(people.project)
    tryout = start(people)
    viewer, stranger = signed_in(people.member), signed_in(people.stranger)
    assert "For editors" in viewer.get(base(people)).content.decode()
    assert viewer.post(base(people), {"version": "1", "task": "train-0001"}).status_code == 403
    assert viewer.get(f"{base(people)}{tryout.pk}/").status_code == 403
    assert viewer.post(f"{base(people)}{tryout.pk}/undo/").status_code == 403
    nobody = Client().get(f"{base(people)}{tryout.pk}/")
    assert (nobody.status_code, nobody["Location"][:16]) == (302, "/accounts/login/")
    assert stranger.get(base(people)).status_code == 404
    assert stranger.post(f"{base(people)}{tryout.pk}/undo/").status_code == 404
    assert stranger.get(f"{base(people)}{tryout.pk}/").status_code == 404


@pytest.mark.parametrize(
    "data",
    [
        {"task": "test-0001"},
        {"task": "train-0001", "extra": '{"task": "test-0001"}'},
        {"extra": '{"task": "test-0001", "more": 1}'},
    ],
)
def test_no_way_leads_to_a_sealed_task(people: People, data: dict[str, str]) -> None:
    make_terminal(people.project)
    reply = signed_in(people.owner).post(base(people), {"version": "1", "seed": "", **data})
    assert reply.status_code == 422
    assert "sealed test task" in reply.content.decode()
    assert not Tryout.objects.exists()


def test_a_reset_of_an_open_tryout_is_no_way_either(people: People) -> None:
    make_terminal(people.project)
    tryout = opened(people)
    reply = ask(people, tryout, "reset", extra='{"task": "test-0001"}')
    assert reply.status_code == 422
    assert "sealed test task" in reply.json()["errors"]["all"]


def test_an_environment_whose_only_task_says_nothing_can_be_played(people: People) -> None:
    """A server by URL has one test task with an empty reset: nothing of it could be sealed."""
    environment = Environment.objects.create(
        project=people.project, slug="files", name="By URL", kind=EnvironmentKind.URL
    )
    create_version(
        environment=environment,
        source={"base_url": "http://127.0.0.1:9"},
        tasks=[NewTask(key="default", split="test", prompt="Act.")],
    )
    start(people, task="", free="1")


def test_an_action_goes_from_the_form_to_a_command(people: People) -> None:
    make_terminal(people.project)
    tryout = opened(people)
    page = signed_in(people.editor).get(f"{base(people)}{tryout.pk}/").content.decode()
    assert 'name="v0.command"' in page and 'name="v1.answer"' in page
    assert 'name="v0.metadata"' not in page
    sent = {"variant": "v0", "v0.command": "ls\r\npwd", "v1.answer": "not this"}
    assert ask(people, tryout, "step", **sent).status_code == 200
    command = tryout.commands.get(kind=CommandKind.STEP)
    assert command.payload == {"action": {"command": "ls\npwd"}}
    wrong = ask(people, tryout, "step", variant="raw", raw="[1]")
    assert wrong.status_code == 422
    assert "JSON object" in wrong.json()["errors"]["raw"]
    without_script = signed_in(people.editor).post(
        f"{base(people)}{tryout.pk}/step/", {"variant": "v0", "v0.command": ""}
    )
    assert without_script.status_code == 422
    assert "is needed" in without_script.content.decode()


def test_a_project_has_two_slots_and_says_who_holds_them(people: People) -> None:
    for slug in ("files", "more", "third"):
        make_terminal(people.project, slug=slug)
    users = [people.owner, people.editor, make_user(username="third-editor")]
    add_member(people.project, users[2], "editor")  # type: ignore[arg-type] # its value
    replies = [
        signed_in(user).post(
            f"/p/{people.project.pk}/environments/files/try/",
            {"version": "1", "task": "train-0001", "seed": "1"},
        )
        for user in users
    ]
    assert [reply.status_code for reply in replies] == [302, 302, 422]
    text = replies[2].content.decode()
    assert people.owner.username in text and people.editor.username in text
    # One's own earlier try-out of the environment makes room for the next.
    assert start(people).user == people.editor
    assert Tryout.objects.filter(state=TryoutState.ENDED).count() == 1


def test_a_closed_tryout_can_be_started_again(people: People) -> None:
    make_terminal(people.project)
    tryout = opened(people)
    signed_in(people.editor).post(f"{base(people)}{tryout.pk}/close/")
    tryout.refresh_from_db()
    assert tryout.state == TryoutState.ENDED
    assert "not open any more" in ask(people, tryout, "undo").json()["errors"]["all"]
    job = tryout.job
    signed_in(people.editor).post(f"{base(people)}{tryout.pk}/restart/")
    tryout.refresh_from_db()
    assert tryout.state == TryoutState.STARTING
    assert tryout.job != job


def test_a_play_becomes_the_reference_transcript_of_the_draft(people: People) -> None:
    make_terminal(people.project)
    tryout = opened(people)
    play(tryout, {"command": "wc -l list.txt"}, {"answer": "3"})
    signed_in(people.editor).post(f"{base(people)}{tryout.pk}/save/")
    draft = tryout.version.environment.draft
    assert draft.base == tryout.version
    assert draft.tasks.get(key="train-0001").reference == [
        {"role": "assistant", "content": "wc -l list.txt"},
        {"role": "user", "content": "seen-1"},
        {"role": "assistant", "content": "answer: 3"},
    ]
    assert draft.tasks.count() == 3
    page = signed_in(people.editor).get(f"{base(people)}{tryout.pk}/").content.decode()
    assert "Publish the draft" in page


@pytest.mark.parametrize(
    ("task", "actions", "reason"),
    [
        ("select-0001", [{"answer": "3"}], "on train tasks only"),
        ("train-0001", [{"command": "ls\npwd"}, {"answer": "3"}], "Step 1 cannot be written"),
        ("train-0001", [], "has not ended"),
    ],
)
def test_what_cannot_be_a_reference_says_why(
    people: People, task: str, actions: list[dict[str, str]], reason: str
) -> None:
    make_terminal(people.project)
    tryout = opened(people, task=task)
    play(tryout, *actions)
    assert reason in ask(people, tryout, "save").json()["errors"]["all"]


def test_tasks_are_found_by_words(people: People) -> None:
    make_terminal(people.project)
    client = signed_in(people.editor)
    assert "train-0001" in client.get(f"{base(people)}?q=number of lines").content.decode()
    assert "No task matches" in client.get(f"{base(people)}?q=unheard").content.decode()


def test_what_the_played_task_says_itself_is_not_sealed(people: People) -> None:
    """Tasks that differ by their seeds alone: only those of the test task are closed."""
    environment = Environment.objects.create(
        project=people.project, slug="files", name="Grid", kind=EnvironmentKind.URL
    )
    create_version(
        environment=environment,
        source={"base_url": "http://127.0.0.1:9"},
        tasks=[
            NewTask(key="a", split="train", prompt="Go.", reset={"level": 1}, seeds=[1]),
            NewTask(key="b", split="test", prompt="Go.", reset={"level": 1}, seeds=[9]),
            NewTask(key="c", split="test", prompt="Go.", reset={"level": 1}),
        ],
    )
    start(people, task="a", seed="1")
    client = signed_in(people.editor)
    refused = client.post(base(people), {"version": "1", "task": "a", "seed": "9"})
    assert refused.status_code == 422
    free = client.post(base(people), {"version": "1", "extra": '{"level": 1}'})
    assert "c is a sealed test task" in free.content.decode()
