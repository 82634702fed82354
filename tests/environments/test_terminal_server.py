"""The terminal kind over its real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.environments.errors import ActionRejectedError, EpisodeError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.probe import SeedEffect, probe
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.session import EpisodeSession
from orchestrator.environments.terminal.spec import TaskSpec
from tests.environments.conftest import needs_bubblewrap

pytestmark = needs_bubblewrap
ANSWER = "a most unlikely answer"
TASKS = [
    TaskSpec(
        "test-0001", "test", "f", "File a.txt. What?", {"a.txt": "red\nice\n"}, ANSWER, "exact"
    ),
    TaskSpec("test-0002", "test", "f", "File b.txt. How many?", {"b.txt": "1\n"}, "7", "number"),
]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("env")
    spec = KINDS["terminal"].server(
        name="t",
        source={},
        resources=Resources(),
        specs=[task.as_json() for task in TASKS],
        data=data,
    )
    assert isinstance(spec, LocalSpec)
    with LocalServer(spec, data / "server") as server:
        yield server.base_url


async def test_an_episode_from_question_to_verdict(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        first = await session.reset(task="test-0001", seed=3)
        assert first.fields["segments"] == [{"kind": "context", "text": "File a.txt. What?"}]
        seen = await session.step({"command": "ls; cat nothing"})
        assert seen.observation.fields == {
            "segments": [
                {
                    "kind": "env_output",
                    "text": "a.txt\ncat: nothing: No such file or directory",
                },
                {"kind": "scaffold", "text": "\n(exit status 1)"},
            ],
            "exit_status": 1,
            "truncated": False,
        }
        assert (seen.reward, seen.done) == (None, False)
        end = await session.step({"answer": f"  {ANSWER} "})
    assert (end.reward, end.done) == (1.0, True)


async def test_what_is_left_is_told_after_the_end_and_not_before(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="test-0001", seed=3)
        made = "mkdir d; echo new > d/b.txt; ln -s /etc/passwd link; mkfifo p; printf '\\377' > raw"
        await session.step({"command": made})
        assert (await session.state())["files"] is None
        await session.step({"answer": "x"})
        files = (await session.state())["files"]
    assert set(files) == {"a.txt", "d/b.txt", "raw"}
    assert files["d/b.txt"]["text"] == "new\n"
    assert (files["raw"]["size"], files["raw"]["text"]) == (1, None)


async def test_a_wrong_answer_is_a_verdict_of_zero(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="test-0002")
        end = await session.step({"answer": "8"})
    assert (end.reward, end.done) == (0.0, True)


async def test_without_an_answer_the_environment_ends_the_episode_with_zero(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="test-0002")
        outcomes = [await session.step({"command": "true"}) for _ in range(4)]
    assert [o.done for o in outcomes] == [False, False, False, True]
    assert [o.reward for o in outcomes] == [None, None, None, 0.0]
    assert outcomes[-1].observation.fields["segments"] == [
        {"kind": "scaffold", "text": "(no output)"},
        {"kind": "warning", "text": "\n(no answer in 4 steps: the episode is over)"},
    ]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({}, "alternatives"),
        ({"command": "ls", "answer": "1"}, "alternatives"),
        ({"command": ""}, "command: is empty"),
        ({"command": "x" * 2001}, "command: is too long"),
        ({"command": "a\0b"}, "characters"),
        ({"cmd": "ls"}, "cmd: not allowed"),
        ({"command": 3}, "command"),
        ("ls", "not a JSON object"),
    ],
)
async def test_actions_that_do_not_fit_are_refused_before_they_are_sent(
    base_url: str, action: dict[str, object] | str, reason: str
) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="test-0001")
        with pytest.raises(ActionRejectedError, match=reason):
            await session.step(action)
        state = await session.state()
    assert state["step_count"] == 0


async def test_an_unknown_task_is_refused_by_name(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        with pytest.raises(EpisodeError, match="unknown task 'test-9999'"):
            await session.reset(task="test-9999")


async def test_the_answer_cannot_be_found_by_an_agent(base_url: str) -> None:
    commands = [
        f"grep -rs '{ANSWER[2:12]}' / --include='*' --exclude-dir=proc --exclude-dir=usr; true",
        "cat /proc/*/cmdline /proc/*/environ | tr '\\0' ' '",
        "ls -la / /task /tmp",
    ]
    said = []
    async with EpisodeSession.open(base_url) as session:
        first = await session.reset(task="test-0001")
        said.append(json.dumps([first.fields, first.metadata]))
        for command in commands:
            outcome = await session.step({"command": command})
            text = json.dumps([outcome.observation.fields, outcome.observation.metadata])
            said.append(text.replace(json.dumps(command)[1:-1], ""))
        said.append(json.dumps(await session.state()))
    assert ANSWER not in "".join(said)
    assert "jsonl" not in "".join(said)


async def test_episodes_have_copies_of_their_own(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as one, EpisodeSession.open(base_url) as two:
        await one.reset(task="test-0001")
        await two.reset(task="test-0001")
        await one.step({"command": "echo changed > a.txt"})
        seen = await two.step({"command": "cat a.txt"})
    assert seen.observation.fields["segments"][0]["text"] == "red\nice"
    async with EpisodeSession.open(base_url) as later:
        await later.reset(task="test-0001")
        seen = await later.step({"command": "cat a.txt"})
    assert seen.observation.fields["segments"][0]["text"] == "red\nice"


async def test_a_folder_that_grows_too_large_ends_the_episode(base_url: str) -> None:
    fill = "for i in 1 2 3 4 5; do head -c 8000000 /dev/zero > f$i; done"
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="test-0001")
        outcome = await session.step({"command": fill})
    assert (outcome.done, outcome.reward) == (True, 0.0)
    assert "more than 32 MiB" in outcome.observation.fields["segments"][-1]["text"]


async def test_thirty_two_episodes_at_a_time(base_url: str) -> None:
    async def one() -> float | None:
        async with EpisodeSession.open(base_url) as session:
            await session.reset(task="test-0002")
            await session.step({"command": "cat b.txt"})
            return (await session.step({"answer": "7"})).reward

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one()) for _ in range(32)]
    assert {task.result() for task in running} == {1.0}


async def test_the_probe_finds_it_usable_and_without_randomness(base_url: str) -> None:
    result = await probe(base_url, reset={"task": "test-0001"})
    assert (result.is_usable, result.is_random) == (True, False)
    assert result.seed is SeedEffect.IGNORED


def _serve(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.environments.terminal.server", *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=env,
    )


def test_the_command_explains_itself() -> None:
    assert "--tasks" in _serve("--help").stdout


def test_it_refuses_without_bubblewrap_and_says_how_to_get_it(tmp_path: Path) -> None:
    result = _serve("--tasks", "x", "--port", "1", env={"PATH": str(tmp_path)})
    assert result.returncode == 2
    assert "apt-get install bubblewrap" in result.stderr
    assert "SWITCHBACK_UNSANDBOXED=1" in result.stderr


def test_it_refuses_a_missing_file_of_tasks(tmp_path: Path) -> None:
    result = _serve("--tasks", str(tmp_path / "none"), "--port", "1")
    assert result.returncode == 2
    assert "No such file" in result.stderr


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("wc -l a.txt", {"command": "wc -l a.txt"}),
        ("\n  ls  \nmore", {"command": "ls"}),
        ("answer: 7", {"answer": "7"}),
        ("Answer:red ice", {"answer": "red ice"}),
        ("answer:", {"answer": ""}),
        ("the answer: 7", {"command": "the answer: 7"}),
        ("", {"command": ""}),
    ],
)
def test_a_reply_becomes_an_action(reply: str, action: dict[str, str]) -> None:
    assert KINDS["terminal"].action_of(reply) == action


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("[1]", "[1]"),
        ("hello", "hello"),
        ('{"a": NaN}', '{"a": NaN}'),
    ],
)
def test_actions_for_other_servers_are_json_objects(
    reply: str, action: dict[str, object] | str
) -> None:
    assert KINDS["url"].action_of(reply) == action
    assert KINDS["url"].segments({"text": "hi"}) == [{"kind": "env_output", "text": "hi"}]
    assert KINDS["url"].segments({"x": 1, "y": "é"}) == [
        {"kind": "env_output", "text": '{"x": 1, "y": "é"}'}
    ]
