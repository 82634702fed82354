"""The server by HTTP, as a real process on the tiny model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

ENDLESS = {"prompt": "b", "temperature": 0, "max_tokens": 1900}
"the tiny model never ends this turn: a loop of some seconds"
CHAT = [{"role": "user", "content": "How many lines?"}]


def complete(server: httpx.Client, **fields: Any) -> httpx.Response:
    body = {"model": "tiny", "prompt": "cat file", "max_tokens": 8, "seed": 1, **fields}
    return server.post("/v1/completions", json=body)


def test_health_and_models_name_the_base_model(server: httpx.Client) -> None:
    health = server.get("/health").json()
    assert (health["status"], health["model"], health["context"]) == ("ok", "tiny", 2048)
    assert server.get("/v1/models").json()["data"][0]["id"] == "tiny"


def test_a_completion_carries_tokens_logprobs_and_usage(server: httpx.Client) -> None:
    answer = complete(server, return_token_ids=True, temperature=0.5).json()
    choice = answer["choices"][0]
    count = len(choice["token_ids"])
    assert count == answer["usage"]["completion_tokens"] <= 8
    assert len(choice["logprobs"]["token_logprobs"]) == count
    assert len(choice["logprobs"]["sampling_logprobs"]) == count
    assert choice["logprobs"]["token_logprobs"] != choice["logprobs"]["sampling_logprobs"]
    assert choice["weight_version"] == "tiny"
    assert "token_ids" not in complete(server).json()["choices"][0]


def test_choices_are_distinct_and_repeatable(server: httpx.Client) -> None:
    first = complete(server, n=3, return_token_ids=True).json()["choices"]
    again = complete(server, n=3, return_token_ids=True).json()["choices"]
    single = complete(server, return_token_ids=True).json()["choices"]
    ids = [choice["token_ids"] for choice in first]
    assert ids == [choice["token_ids"] for choice in again]
    assert ids[0] == single[0]["token_ids"]
    assert len({tuple(tokens) for tokens in ids}) == 3


def test_a_chat_equals_a_completion_of_its_tokens_and_continues_by_the_bridge(
    server: httpx.Client,
) -> None:
    fields = {"model": "tiny", "max_tokens": 8, "temperature": 0}
    chat = server.post(
        "/v1/chat/completions", json={**fields, "messages": CHAT, "return_token_ids": True}
    ).json()
    spans = server.post("/v1/tokenize", json={"messages": CHAT}).json()
    assert chat["prompt_token_ids"] == spans["ids"]
    raw = complete(server, prompt=spans["ids"], temperature=0, return_token_ids=True).json()
    choice = raw["choices"][0]
    assert choice["token_ids"] == chat["choices"][0]["token_ids"]
    assert choice["text"] == chat["choices"][0]["message"]["content"]
    segments = [{"kind": "env_output", "text": "3 a.txt"}]
    bridge = server.post(
        "/v1/tokenize",
        json={"bridge": {"sampled_eos": choice["sampled_eos"], "segments": segments}},
    ).json()
    longer = [*spans["ids"], *choice["token_ids"], *bridge["ids"]]
    follow_up = complete(server, prompt=longer).json()
    cached = follow_up["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= len(spans["ids"])


def test_adapters_are_loaded_used_and_deleted_by_name(
    server: httpx.Client, make_adapter: Callable[[int], Path]
) -> None:
    folder = str(make_adapter(5))
    assert server.post("/v1/adapters", json={"name": "v1", "path": folder}).status_code == 201
    assert server.post("/v1/adapters", json={"name": "v1", "path": folder}).status_code == 201
    other = {"name": "v1", "path": str(make_adapter(6))}
    conflict = server.post("/v1/adapters", json=other)
    assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "adapter_conflict")
    choice = complete(server, model="v1", return_token_ids=True).json()["choices"][0]
    assert choice["weight_version"] == "v1"
    base = complete(server, return_token_ids=True).json()["choices"][0]
    assert choice["token_ids"] != base["token_ids"]
    assert server.delete("/v1/adapters/v1").status_code == 204
    assert server.delete("/v1/adapters/v1").status_code == 404
    assert complete(server, model="v1").status_code == 404


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0.9}, "top_p"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"stream": True}, "stream"),
        ({"n": 0}, "n"),
        ({"stop": [1]}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"model": None}, "model"),
        ({"max_tokens": 9000}, None),
        ({"prompt": [99999]}, None),
    ],
)
def test_a_bad_field_is_a_400_that_names_it(
    server: httpx.Client, fields: dict[str, Any], param: str | None
) -> None:
    answer = complete(server, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"]


def test_other_faults_have_their_own_status(server: httpx.Client) -> None:
    unknown = complete(server, model="nope")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert server.post("/v1/completions", content=b"{").status_code == 400
    assert server.post("/v1/completions", content=b"x" * 5_000_000).status_code == 413
    bad = {"bridge": {"sampled_eos": True, "segments": [{"kind": "action", "text": ""}]}}
    assert server.post("/v1/tokenize", json=bad).status_code == 400
    full = complete(server, n=41)
    assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
    late = complete(server, **ENDLESS, timeout_s=0.05)
    assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_a_caller_that_hangs_up_frees_its_rows(server: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        server.post(
            "/v1/completions",
            json={"model": "tiny", "n": 40, **ENDLESS},
            timeout=0.3,
        )
    begin = time.monotonic()
    assert complete(server).status_code == 200
    assert time.monotonic() - begin < 1.0


def test_many_callers_at_once_all_get_their_own_answer(server: httpx.Client) -> None:
    def ask(seed: int) -> list[int]:
        choice = complete(server, seed=seed, return_token_ids=True).json()["choices"][0]
        tokens: list[int] = choice["token_ids"]
        return tokens

    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(ask, range(16)))
    assert together == [ask(seed) for seed in range(16)]


def test_a_missing_model_is_a_clear_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training.serve", "--model", str(tmp_path), "--name", "x"]
    done = subprocess.run(
        [*command, "--port", "1"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "error: cannot load the model" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux' prctl")
def test_the_server_ends_with_its_parent(tiny_folder: Path) -> None:
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'training.serve', "
        f"'--model', {str(tiny_folder)!r}, '--name', 'tiny', '--port', '0'], "
        "stderr=subprocess.PIPE, text=True); "
        "[print(p.pid, flush=True) for line in p.stderr if 'running on' in line]"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        watch = os.pidfd_open(child)
        parent.send_signal(signal.SIGKILL)
    import select

    poll = select.poll()
    poll.register(watch, select.POLLIN)
    assert poll.poll(10_000), "the server outlived its parent"
    os.close(watch)
