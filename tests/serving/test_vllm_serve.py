"""The model server in front of a vLLM server: its routes, and no weights of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.doubles.vllm_server import NAME, VllmDouble, running
from tests.serving.waiting import wait_until_ready

KEY = "not-a-real-key"


@pytest.fixture(scope="module")
def double(tiny_folder: Path) -> Iterator[VllmDouble]:
    with running(tiny_folder, api_key=KEY, is_processed=True) as started:
        yield started


@pytest.fixture(scope="module")
def bridge(tiny_folder: Path, double: VllmDouble) -> Iterator[httpx.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "training.serve", "--model", str(tiny_folder)]
    command += ["--name", "tiny", "--port", str(port), "--vllm", double.url]
    command += ["--vllm-model", NAME, "--vllm-processed"]
    with subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SWITCHBACK_VLLM_API_KEY": KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            wait_until_ready(client, process, timeout_s=60)
            yield client
        process.terminate()


def test_tokens_and_adapters_pass_through_it(
    bridge: httpx.Client, double: VllmDouble, make_adapter: Callable[[int], Path]
) -> None:
    messages = [{"role": "user", "content": "How many lines?"}]
    prompt = bridge.post("/v1/tokenize", json={"messages": messages}).json()["ids"]
    body = {"prompt": prompt, "max_tokens": 6, "seed": 2, "temperature": 0.7}
    body |= {"logprobs": 0, "return_token_ids": True}
    # As a client does that finds the adapter unknown.
    asked = {"model": "t3-v0001", **body}
    assert bridge.post("/v1/completions", json=asked).status_code == 404
    folder = make_adapter(5)
    added = bridge.post("/v1/adapters", json={"name": "t3-v0001", "path": str(folder)})
    assert added.status_code == 201
    choices = {
        model: bridge.post("/v1/completions", json={"model": model, **body}).json()["choices"][0]
        for model in ("tiny", "t3-v0001")
    }
    assert [asked["model"] for asked in double.asked] == [NAME, "t3-v0001"]
    for model, choice in choices.items():
        assert choice["weight_version"] == model
        assert len(choice["token_ids"]) == len(choice["logprobs"]["sampling_logprobs"]) > 0
    assert choices["tiny"]["logprobs"] != choices["t3-v0001"]["logprobs"]
    names = [card["id"] for card in bridge.get("/v1/models").json()["data"]]
    assert names == ["tiny", "t3-v0001"]
    assert bridge.delete("/v1/adapters/t3-v0001").status_code == 204


def test_a_whole_model_is_refused_with_its_reason(bridge: httpx.Client, tiny_folder: Path) -> None:
    answer = bridge.post("/v1/adapters", json={"name": "whole", "path": str(tiny_folder)})
    assert answer.status_code == 400
    assert "HTTP 400" in answer.json()["error"]["message"]


@pytest.mark.slow
def test_an_address_that_is_none_is_refused_at_the_start(tiny_folder: Path) -> None:
    command = [sys.executable, "-m", "training.serve", "--model", str(tiny_folder)]
    command += ["--name", "tiny", "--port", "1", "--vllm", "host:8000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "--vllm: 'host:8000' is no http(s) address" in done.stderr
