"""The qa kind over its real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.environments.errors import ActionRejectedError, EpisodeError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.session import EpisodeSession

SECRET = "a most unlikely answer"
SPECS = [
    {"key": "a", "prompt": "What?", "answers": [SECRET]},
    {"key": "b", "prompt": "How many?", "answers": ["7"], "match": "number"},
    {"key": "slow", "prompt": "Which?", "answers": ["^(a|aa)+$"], "match": "regex"},
]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("qa")
    spec = KINDS["qa"].server(name="q", source={}, resources=Resources(), specs=SPECS, data=data)
    assert isinstance(spec, LocalSpec)
    assert SECRET not in " ".join(spec.command)
    with LocalServer(spec, data / "server") as server:
        yield server.base_url


async def test_a_question_an_answer_a_verdict(base_url: str) -> None:
    for reply, reward in ((f"answer: {SECRET}", 1.0), ("no idea", 0.0), ("", 0.0)):
        async with EpisodeSession.open(base_url) as session:
            first = await session.reset(task="a", seed=1)
            assert first.fields == {"segments": [{"kind": "context", "text": "What?"}]}
            end = await session.step(KINDS["qa"].action_of(reply))
            assert (end.reward, end.done) == (reward, True)
            assert KINDS["qa"].segments(end.observation.fields)[0]["kind"] == "scaffold"


async def test_the_answer_stands_nowhere(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        first = await session.reset(task="a")
        state = await session.state()
        end = await session.step({"answer": "wrong"})
        after = await session.state()
    said = json.dumps(
        [first.fields, first.metadata, state, end.observation.fields, end.observation.metadata]
    )
    assert SECRET not in said + json.dumps(after)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({}, "answer"),
        ({"answer": 7}, "answer"),
        ({"answer": "a\0b"}, "characters"),
        ({"answer": "x" * 20_001}, "too long"),
        ({"answer": "x", "more": 1}, "more: not allowed"),
    ],
)
async def test_what_does_not_fit_is_refused_before_it_is_sent(
    base_url: str, action: dict[str, object], reason: str
) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="a")
        with pytest.raises(ActionRejectedError, match=reason):
            await session.step(action)


async def test_sessions_do_not_mix(base_url: str) -> None:
    async def play(task: str, answer: str) -> float | None:
        async with EpisodeSession.open(base_url) as session:
            await session.reset(task=task)
            return (await session.step({"answer": answer})).reward

    plays = [("a", SECRET), ("b", "7"), ("a", "7"), ("b", SECRET)] * 4
    async with asyncio.TaskGroup() as group:
        played = [group.create_task(play(*each)) for each in plays]
    assert [p.result() for p in played] == [1.0, 1.0, 0.0, 0.0] * 4


async def test_an_unknown_task_is_refused_by_name(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        with pytest.raises(EpisodeError, match="unknown task 'z'"):
            await session.reset(task="z")


async def test_a_pattern_that_never_ends_gives_no_score(base_url: str) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="slow")
        with pytest.raises(EpisodeError, match="simplify it"):
            await session.step({"answer": "a" * 60 + "b"})


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Paris", "Paris"),
        ("Let me think.\n**Answer:** Paris\n", "Paris"),
        ("answer: x\nno, wait\nThe final answer: y\nz", "y\nz"),
        ("", ""),
    ],
)
def test_a_reply_becomes_an_answer(reply: str, answer: str) -> None:
    assert KINDS["qa"].action_of(reply) == {"answer": answer}


def test_the_file_of_tasks_is_for_its_owner_alone(tmp_path: Path) -> None:
    KINDS["qa"].server(name="q", source={}, resources=Resources(), specs=SPECS, data=tmp_path)
    (path,) = (tmp_path / "q").glob("*.jsonl")
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ValueError, match="needs at least one"):
        KINDS["qa"].server(name="q", source={}, resources=Resources(), specs=[], data=tmp_path)
