"""Terminal tasks on a version that may reach some names; and limits as an agent reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.environments.kinds import KINDS
from orchestrator.environments.resources import Network, Resources
from orchestrator.environments.sandbox import cgroup
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.session import EpisodeSession
from orchestrator.environments.terminal.observation import text_of
from orchestrator.environments.terminal.spec import TaskSpec
from tests.environments.conftest import needs_bubblewrap

pytestmark = needs_bubblewrap
TASK = TaskSpec("train-0001", "train", "f", "What?", {"a.txt": "red\n"}, "red", "exact")
ASK = (
    "exec 3<>/dev/tcp/127.0.0.1/3128; "
    "printf 'CONNECT %s:443 HTTP/1.1\\r\\n\\r\\n' {host} >&3; head -n 1 <&3"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("env")


@pytest.fixture(scope="module")
def base_url(data: Path) -> Iterator[str]:
    spec = KINDS["terminal"].server(
        name="v1",
        source={},
        resources=Resources(network=Network("allow-list", ("api.invalid",))),
        specs=[TASK.as_json()],
        data=data,
    )
    assert isinstance(spec, LocalSpec)
    with LocalServer(spec, data / "server") as server:
        yield server.base_url


async def test_a_command_asks_the_proxy_and_the_decision_is_written_where_it_is_collected(
    base_url: str, data: Path
) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task=TASK.key)
        off_list = await session.step({"command": ASK.format(host="other.net")})
        on_list = await session.step({"command": ASK.format(host="api.invalid")})
        direct = await session.step({"command": "exec 3<>/dev/tcp/1.1.1.1/443"})
    assert "403" in text_of(off_list.observation.fields["segments"])
    assert "403" in text_of(on_list.observation.fields["segments"]), "it does not resolve"
    assert "unreachable" in text_of(direct.observation.fields["segments"])
    lines = (data / "v1" / "decisions.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in lines]
    assert reasons == ["not on the allow-list", "the name does not resolve"]


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("f(){ f|f& };f; sleep 60", "limit of 24 processes"),
        ("(head -c 100M /dev/zero; sleep 9) | tail & "
         "(head -c 100M /dev/zero; sleep 9) | tail & "
         "(head -c 100M /dev/zero; sleep 9) | tail & wait", "memory limit of 256 MiB"),
    ],
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.skipif(
    not {"memory", "pids"} <= set(cgroup.usable()), reason="no control groups: not told"
)
async def test_a_bomb_becomes_a_warning_in_the_observation_and_the_episode_goes_on(
    base_url: str, command: str, limit: str
) -> None:
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task=TASK.key)
        seen = await session.step({"command": command})
        warnings = [
            s["text"] for s in seen.observation.fields["segments"] if s["kind"] == "warning"
        ]
        assert any(limit in text for text in warnings), warnings
        after = await session.step({"command": "cat a.txt"})
        assert after.observation.fields["segments"] == [{"kind": "env_output", "text": "red"}]
