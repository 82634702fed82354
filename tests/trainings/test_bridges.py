"""Bridges to Tinker servers: real processes beside a real server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tinker")

from orchestrator.agents import bridges  # after the skip
from orchestrator.agents.client import LocalModel, ModelClient
from orchestrator.agents.endpoints import endpoint_of
from orchestrator.agents.errors import BridgeDown
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.agents.types import Sampling
from tests.waiting import wait_until
from training.prepare import make_tiny
from training.tinker.engine import Engine
from training.tinker.server import TinkerServer


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch, data: Path) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    bridges.close_bridges()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


def endpoint(url: str, folder: Path) -> ModelEndpoint:
    return ModelEndpoint(
        name="Remote",
        kind=EndpointKind.TINKER,
        base_url=url,
        model="tiny",
        tokenizer_path=str(folder),
    )


def only_bridge() -> bridges.Bridge:
    (found,) = bridges._bridges.values()
    return found


async def sampled(model: ModelEndpoint, address: str) -> tuple[int, ...]:
    endpoint = endpoint_of(model)
    assert endpoint.base_url == address
    async with ModelClient(endpoint) as client:
        local = LocalModel(client)
        ids, _ = await local.tokenize_messages([{"role": "user", "content": "Say something."}])
        sampling = Sampling(temperature=1.0, max_tokens=6, stop=())
        answer = await local.complete(ids, sampling, seed=3)
    assert len(answer.logprobs) == len(answer.token_ids) > 0
    assert answer.weight_version == "tiny"
    return answer.token_ids


@pytest.mark.slow
async def test_a_bridge_is_started_once_and_again_when_it_was_killed(tiny: Path) -> None:
    with TinkerServer(Engine(tiny)) as server:
        model = endpoint(server.url, tiny)
        address = bridges.bridge_to(model)
        first = await sampled(model, address)
        bridge = only_bridge()
        assert bridge.process is not None
        killed = bridge.process.pid
        os.kill(killed, signal.SIGKILL)

        def is_new() -> bool:
            process = bridge.process
            return process is not None and process.pid != killed and bridge.answers()

        wait_until(is_new, limit_s=120.0, what="the bridge to be back")
        assert bridges.bridge_to(model) == address  # its clients keep the address
        assert await sampled(model, address) == first


def test_a_bridge_that_cannot_start_says_why_and_is_not_tried_again(tmp_path: Path) -> None:
    model = endpoint("http://127.0.0.1:9", tmp_path / "nothing")
    with pytest.raises(BridgeDown, match=r"does not start: .*nothing"):
        bridges.bridge_to(model)
    assert only_bridge().starts == bridges.MAX_STARTS
    assert "tml" not in repr(only_bridge())
