"""Plays by hand on a real terminal server, held by the real job in a worker's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from orchestrator.environments.kinds import KINDS
from orchestrator.environments.session import EpisodeSettings
from orchestrator.runs import engine
from orchestrator.tryouts import host, services
from orchestrator.tryouts.forms import action_form, read_action
from orchestrator.tryouts.loop import LoopThread
from orchestrator.tryouts.models import CommandState, Tryout, TryoutState
from orchestrator.tryouts.play import Note
from orchestrator.tryouts.session import LiveEpisode
from tests.base import People
from tests.doubles.openenv_servers import FaultServer
from tests.environments.conftest import needs_bubblewrap
from tests.runs.drive import assert_gapless, make_rubric, make_version
from tests.tryouts.drive import (
    hosting,
    kinds_of,
    make_terminal,
    play_of,
    wait_quiet,
    wait_state,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), needs_bubblewrap]


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def start(people: People, *, with_rubric: bool = False) -> Tryout:
    version = make_terminal(people.project)
    task = version.tasks.get(key="train-0001")
    return services.start_tryout(
        actor=people.editor,
        version=version,
        task=task,
        params={"seed": 3, **task.reset},
        rubric_version=make_rubric(people.project) if with_rubric else None,
    )


def step(people: People, tryout: Tryout, **action: str) -> None:
    services.ask_step(actor=people.editor, tryout=tryout, action=action)


def test_a_play_from_reset_to_its_end(people: People) -> None:
    tryout = start(people, with_rubric=True)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        play = wait_quiet(tryout, hosted)
        assert play.params == {"seed": 3, "task": "train-0001"}
        assert tryout.action_schema is not None
        step(people, tryout, command="wc -l list.txt")
        play = wait_quiet(tryout, hosted)
        (first,) = play.steps
        assert first.observation is not None
        assert first.observation["segments"] == [{"kind": "env_output", "text": "3 list.txt"}]
        assert (first.observation["reward"], first.done) == (None, False)
        assert [v["state"] for v in first.verdicts] == ["pending"]
        step(people, tryout, answer="3")
        play = wait_quiet(tryout, hosted)
        last = play.steps[-1]
        assert last.observation is not None
        assert (last.observation["reward"], last.done, play.is_done) == (1.0, True, True)
        assert last.score is not None
        assert (last.score["state"], last.score["value"]) == ("scored", 1.0)
        step(people, tryout, command="ls")
        play = wait_quiet(tryout, hosted)
        assert len(play.steps) == 2
        assert "over" in play.notes[-1].payload["reason"]
        services.close_tryout(actor=people.editor, tryout=tryout)
        hosted.join()
    tryout.refresh_from_db()
    assert tryout.state == TryoutState.ENDED
    assert_gapless([tryout.stream_id])


def test_an_action_that_does_not_fit_is_refused_and_costs_nothing(people: People) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        for _ in range(4):
            services.ask_step(actor=people.editor, tryout=tryout, action={"order": "ls"})
        play = wait_quiet(tryout, hosted)
        assert play.steps == []
        assert {note.payload["reason"] for note in play.notes} == {"order: not allowed"}
        step(people, tryout, command="ls")
        assert len(wait_quiet(tryout, hosted).steps) == 1


def test_undo_plays_all_but_the_last_steps_again(people: People) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        step(people, tryout, command="echo one > made.txt")
        step(people, tryout, command="echo two > made.txt")
        step(people, tryout, answer="7")
        assert wait_quiet(tryout, hosted).is_done
        services.ask_undo(actor=people.editor, tryout=tryout, steps=2)
        play = wait_quiet(tryout, hosted)
        assert [s.action for s in play.steps] == [{"command": "echo one > made.txt"}]
        note = play.notes[-1].payload
        assert (note["undone"], note["steps"], note["differences"]) == (2, 1, [])
        step(people, tryout, command="cat made.txt")
        play = wait_quiet(tryout, hosted)
        assert play.steps[-1].observation is not None
        assert play.steps[-1].observation["segments"][0]["text"] == "one"


def test_a_replay_says_where_the_environment_is_not_deterministic(people: People) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        step(people, tryout, command="cat list.txt")
        step(people, tryout, command="cat /proc/sys/kernel/random/uuid")
        step(people, tryout, command="ls")
        before = wait_quiet(tryout, hosted)
        services.ask_undo(actor=people.editor, tryout=tryout)
        play = wait_quiet(tryout, hosted)
        assert play.notes[-1].payload["differences"] == [{"step": 2, "fields": ["segments"]}]
        assert len(play.steps) == 2
        old, new = before.steps[1].observation, play.steps[1].observation
        assert old is not None and new is not None
        assert old["segments"] != new["segments"]  # what is shown is what the session holds


def test_the_state_is_told_on_demand(people: People) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        services.ask_state(actor=people.editor, tryout=tryout)
        play = wait_quiet(tryout, hosted)
        assert play.reset_state is not None
        assert '"task": "train-0001"' in play.reset_state


def test_a_rubric_that_is_chosen_later_grades_the_steps_so_far(people: People) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        step(people, tryout, command="ls")
        step(people, tryout, answer="3")
        assert wait_quiet(tryout, hosted).steps[0].verdicts == []
        services.choose_rubric(
            actor=people.editor, tryout=tryout, rubric_version=make_rubric(people.project)
        )
        play = wait_quiet(tryout, hosted)
        assert [s.score["state"] for s in play.steps if s.score] == ["pending", "scored"]


@pytest.mark.parametrize("end", ["give_up", "stop"])
def test_a_lost_worker_is_told_and_the_play_goes_on_by_replay(people: People, end: str) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        step(people, tryout, command="echo one > made.txt")
        wait_quiet(tryout, hosted)
        getattr(hosted, end)()
    step(people, tryout, command="never carried out")
    with hosting(tryout) as second:
        wait_state(tryout, TryoutState.LOST)
        second.join()
    assert "played again" in tryout.message
    assert set(tryout.commands.values_list("state", flat=True)) == {
        CommandState.DONE,
        CommandState.REFUSED,
    }
    assert kinds_of(tryout)[-1] == "tryout.lost"
    services.restart_tryout(actor=people.editor, tryout=tryout)
    with hosting(tryout) as third:
        wait_state(tryout, TryoutState.OPEN)
        play = wait_quiet(tryout, third)
        assert [s.action for s in play.steps] == [{"command": "echo one > made.txt"}]
        assert play.notes[-1].payload["reason"] == "restart"
        step(people, tryout, command="cat made.txt")
        play = wait_quiet(tryout, third)
        assert play.steps[-1].observation is not None
        assert play.steps[-1].observation["segments"][0]["text"] == "one"


def test_an_unused_tryout_closes_and_says_why(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "IDLE_S", 0.5)
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.ENDED)
        hosted.join()
    assert "Nothing was asked for" in tryout.message
    assert play_of(tryout).notes[-1].payload["reason"] == "idle"


def test_a_dead_server_is_started_again_by_the_next_reset(people: People) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        wait_quiet(tryout, hosted)
        kill_server()
        step(people, tryout, command="ls")
        play = wait_quiet(tryout, hosted)
        assert play.steps[-1].failure is not None
        assert play.steps[-1].failure["cause"] in ("session_lost", "server_lost")
        services.ask_undo(actor=people.editor, tryout=tryout)
        play = wait_quiet(tryout, hosted)
        assert (play.steps, play.is_over) == ([], False)
        step(people, tryout, command="cat list.txt")
        assert wait_quiet(tryout, hosted).steps[-1].observation is not None


def kill_server() -> None:
    """Its exit status is left to who started it."""
    (server,) = [
        child
        for child in psutil.Process().children(recursive=True)
        if "orchestrator.environments.terminal.server" in child.cmdline()
    ]
    server.kill()
    wait_until(
        lambda: server.status() == psutil.STATUS_ZOMBIE, limit_s=60, what="the server's death"
    )


def test_notes_stand_where_they_were_made(people: People) -> None:
    tryout = start(people)
    with hosting(tryout) as hosted:
        wait_state(tryout, TryoutState.OPEN)
        step(people, tryout, command="ls")
        services.ask_step(actor=people.editor, tryout=tryout, action={"order": "ls"})
        step(people, tryout, command="ls")
        play = wait_quiet(tryout, hosted)
    shapes = ["note" if isinstance(item, Note) else item.number for item in play.timeline()]
    assert shapes == [1, "note", 2]


def test_a_server_of_tools_is_played_by_its_tools(people: People, tmp_path: Path) -> None:
    server = FaultServer(tmp_path, "fault_mcp_env")
    asyncio.run(server.start())
    try:
        version = make_version(people.project, server.base_url, tasks=1)
        tryout = services.start_tryout(
            actor=people.editor, version=version, task=None, params={"seed": 1}
        )
        with hosting(tryout) as hosted:
            wait_state(tryout, TryoutState.OPEN)
            wait_quiet(tryout, hosted)
            form = action_form(tryout.action_schema, tryout.tools)
            assert [v.label for v in form.variants] == ["fast", "slow"]
            action = read_action(form, {"variant": "v0"}).value
            services.ask_step(actor=people.editor, tryout=tryout, action=action)
            play = wait_quiet(tryout, hosted)
            assert play.steps[0].observation is not None
            assert play.steps[0].observation["segments"] == [{"kind": "env_output", "text": "ok"}]
            assert play.steps[0].observation["reward"] is None
    finally:
        server.stop()


def test_a_full_server_is_told_and_then_refuses(people: People, tmp_path: Path) -> None:
    server = FaultServer(tmp_path, "fault_env", {"MAX_CONCURRENT_ENVS": "1"})
    asyncio.run(server.start())
    try:
        version = make_version(people.project, server.base_url, tasks=1)
        with taken_slot(server.base_url):
            tryout = services.start_tryout(
                actor=people.editor, version=version, task=None, params={}
            )
            with hosting(tryout) as hosted:
                wait_state(tryout, TryoutState.OPEN)
                play = wait_quiet(tryout, hosted)
        assert "tryout.waiting" in kinds_of(tryout)
        assert play.reset_failure is not None
        assert play.reset_failure["cause"] == "no_capacity"
    finally:
        server.stop()


@contextmanager
def taken_slot(base_url: str) -> Iterator[None]:
    with LoopThread() as loop:
        episode = LiveEpisode(base_url, EpisodeSettings(), KINDS["url"], nothing)
        loop.run(episode.reset({}), check=lambda: None)
        yield
        loop.run(episode.close(), check=lambda: None)


async def nothing(waiting: object) -> None:
    """The slot is free."""
