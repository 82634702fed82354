"""The client of a vLLM server, over real HTTP against a stand-in that speaks its API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from training.errors import ConfigurationError, SamplerError
from training.vllm import VllmSampler


@dataclass
class Served:
    """State of the stand-in: at most `slots` adapters, like `--max-loras`."""

    slots: int = 2
    adapters: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of a choice that go wrong."""
    loses_adapters: bool = False

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, str]:
        if path == "/v1/models":
            return 200, json.dumps({"data": [{"id": n} for n in ("base", *self.adapters)]})
        if path == "/v1/unload_lora_adapter":
            self.adapters.remove(body["lora_name"])
            return 200, "Success: LoRA adapter removed."
        if path == "/v1/load_lora_adapter":
            if len(self.adapters) >= self.slots:
                return 400, "no free slot"
            if not self.loses_adapters:
                self.adapters.append(body["lora_name"])
            return 200, "Success: LoRA adapter added."
        self.asked.append(body)
        choices = [
            {
                "token_ids": [len(body["prompt"]), i],
                "logprobs": {"token_logprobs": [-0.5, -1.0 - i]},
                "finish_reason": "length" if i else "stop",
                "prompt_token_ids": body["prompt"],
                **self.changes,
            }
            for i in range(body["n"])
        ]
        return 200, json.dumps({"model": body["model"], "choices": choices})


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
def sampler(served: Served) -> Iterator[VllmSampler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status, text = served.answer(self.path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = _answer  # names of the base class

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield VllmSampler(f"http://127.0.0.1:{server.server_port}", "base", timeout_s=60.0)
    server.shutdown()
    thread.join()
    server.server_close()


def test_tokens_come_back_as_sampled_with_their_version(
    sampler: VllmSampler, served: Served
) -> None:
    sampler.publish("job-v0001", Path("/weights/v0001"))
    first, second = sampler.sample([[5, 6], [7]], n=2, max_tokens=8, version="job-v0001", seed=3)
    assert [s.ids for s in first] == [(2, 0), (2, 1)]
    assert [s.logprobs for s in first] == [(-0.5, -1.0), (-0.5, -2.0)]
    assert [s.is_truncated for s in first] == [False, True]
    assert second[0].weight_version == "job-v0001"
    assert [request["seed"] for request in served.asked] == [3, 4]
    assert served.asked[0]["return_token_ids"] is True


def test_adapters_are_swapped_and_old_ones_make_room(sampler: VllmSampler, served: Served) -> None:
    for number in range(1, 5):
        sampler.publish(f"v{number}", Path(f"/weights/v{number}"))
        sampler.publish(f"v{number}", Path(f"/weights/v{number}"))
    assert served.adapters == ["v3", "v4"]
    with pytest.raises(SamplerError, match="v2 is not served, there are base, v3, v4"):
        sampler.sample([[1]], n=1, max_tokens=1, version="v2")


def test_an_adapter_that_did_not_arrive_is_noticed(sampler: VllmSampler, served: Served) -> None:
    served.loses_adapters = True
    with pytest.raises(SamplerError, match="is not served"):
        sampler.publish("v1", Path("/weights/v1"))


def test_a_full_server_says_why(sampler: VllmSampler, served: Served) -> None:
    served.slots = 0
    with pytest.raises(SamplerError, match="HTTP 400: no free slot"):
        sampler.publish("v1", Path("/weights/v1"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": None}, "no token ids"),
        ({"logprobs": None}, "no token ids or log-probs"),
        ({"logprobs": {"token_logprobs": [-1.0]}}, "2 ids but 1 log-probs"),
        ({"logprobs": {"token_logprobs": [-1.0, float("nan")]}}, "not finite"),
        ({"prompt_token_ids": [9]}, "another prompt"),
    ],
)
def test_an_answer_that_cannot_be_trained_on_is_refused(
    sampler: VllmSampler, served: Served, changes: dict[str, Any], message: str
) -> None:
    served.changes = changes
    with pytest.raises(SamplerError, match=message):
        sampler.sample([[1]], n=1, max_tokens=2)


def test_a_temperature_whose_log_probs_are_unknown_is_refused(sampler: VllmSampler) -> None:
    with pytest.raises(ConfigurationError, match="processed_logprobs"):
        sampler.sample([[1]], n=1, max_tokens=2, temperature=0.7)
    sampler.is_processed = True
    assert sampler.sample([[1]], n=1, max_tokens=2, temperature=0.7)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(SamplerError, match="http://127"):
        VllmSampler("http://127.0.0.1:9", "base").sample([[1]], n=1, max_tokens=1)
