"""Weights on a Tinker server sampled through the model server's API."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("tinker")

from tests.training.builders import make_step  # after the skip
from tests.waiting import wait_until
from training.backends.base import AdamSpec
from training.backends.tinker import TinkerSession, TinkerSpec
from training.engine.adapters import AdapterError
from training.engine.scheduler import (
    AdapterConflict,
    RequestRefused,
    SampleRequest,
    UnknownModel,
)
from training.losses import build_streams
from training.tinker.engine import Engine
from training.tinker.sampler import RemoteSampler
from training.tinker.server import TinkerServer
from training.types import ObjectiveSpec, Row, RowStatus, TokenKind

PROMPT = tuple(range(5, 25))


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


@pytest.fixture
def server(tiny_folder: Path) -> Iterator[TinkerServer]:
    with TinkerServer(Engine(tiny_folder)) as started:
        yield started


@pytest.fixture
def session(server: TinkerServer) -> TinkerSession:
    spec = TinkerSpec(server.url, "", "tiny", rank=4, seed=3, name="job", timeout_s=60.0)
    return TinkerSession(spec)


def sampler_of(server: TinkerServer, folder: Path) -> RemoteSampler:
    return RemoteSampler(base_url=server.url, api_key="", name="tiny", folder=folder)


def trained(session: TinkerSession, root: Path, number: int) -> Path:
    rows = make_step(seed=number)
    spec = ObjectiveSpec(lambda_env=1.0)
    session.forward_backward(rows, build_streams(rows, spec), spec).result()
    session.optim_step(AdamSpec(learning_rate=3e-2)).result()
    session.save_state(root / f"state-{number}").result()
    return session.publish(root, number).result().adapter


def as_row(ids: tuple[int, ...]) -> Row:
    kinds = (TokenKind.CONTEXT,) * len(ids)
    return Row("r", "g", None, RowStatus.OK, ids, kinds, None)


def test_log_probs_are_those_of_the_weights_that_a_name_stands_for(
    server: TinkerServer, session: TinkerSession, tiny_folder: Path, tmp_path: Path
) -> None:
    sampler = sampler_of(server, tiny_folder)
    first = trained(session, tmp_path, 1)
    scores = {}
    sampler.add_adapter(name="v1", path=first)
    request = SampleRequest("v1", PROMPT, max_tokens=8, seed=4)
    before = sampler.submit(request)[0].result(60)
    ids = (*PROMPT, *before.token_ids)
    scores["v1"] = session.forward([as_row(ids)], temperature=1.0).result()[0]
    sampler.add_adapter(name="v2", path=trained(session, tmp_path, 2))
    scores["v2"] = session.forward([as_row(ids)], temperature=1.0).result()[0]
    again = sampler.submit(request)[0].result(60)
    # The name is pinned, though the server's model went on.
    assert again.token_ids == before.token_ids
    assert again.sampling_logprobs == pytest.approx(before.sampling_logprobs, abs=1e-4)
    n = len(before.token_ids)
    assert before.weight_version == "v1"
    assert before.sampling_logprobs == pytest.approx(scores["v1"][-n:], abs=1e-4)
    assert before.sampling_logprobs != pytest.approx(scores["v2"][-n:], abs=1e-2)
    greedy = sampler.submit(SampleRequest("tiny", PROMPT, max_tokens=4, temperature=0.0))[0]
    assert greedy.result(60).sampling_logprobs == [0.0] * len(greedy.result().token_ids)
    assert max(greedy.result().token_logprobs) < 0.0
    sampler.close()


def test_a_stop_string_cuts_a_sample_where_the_model_server_would(
    server: TinkerServer, tiny_folder: Path
) -> None:
    sampler = sampler_of(server, tiny_folder)
    whole = sampler.submit(SampleRequest("tiny", PROMPT, max_tokens=24, seed=1))[0].result(60)
    text = sampler.tokenizer.decode(whole.token_ids[:10])
    stop = text[-1]
    cut = sampler.submit(SampleRequest("tiny", PROMPT, max_tokens=24, seed=1, stop=(stop,)))
    found = cut[0].result(60)
    n = len(found.token_ids)
    assert (found.finish_reason, found.stop_reason) == ("stop", stop)
    assert n <= 10
    assert found.token_ids == whole.token_ids[:n]
    assert found.sampling_logprobs == pytest.approx(whole.sampling_logprobs[:n], abs=1e-4)
    assert found.text == whole.text[: whole.text.index(stop)]
    sampler.close()


def test_what_cannot_be_sampled_is_refused_with_its_reason(
    server: TinkerServer, tiny_folder: Path, tmp_path: Path
) -> None:
    sampler = sampler_of(server, tiny_folder)
    with pytest.raises(RequestRefused, match=r"log-probabilities at 1; sample at 1, or at 0"):
        sampler.submit(SampleRequest("tiny", PROMPT, max_tokens=2, temperature=0.7))
    with pytest.raises(UnknownModel, match="'v9' is not served"):
        sampler.submit(SampleRequest("v9", PROMPT, max_tokens=2))
    with pytest.raises(RequestRefused, match="context"):
        sampler.submit(SampleRequest("tiny", PROMPT, max_tokens=10**6))
    with pytest.raises(AdapterError, match="points to no weights"):
        sampler.add_adapter(name="v1", path=tmp_path)
    with pytest.raises(AdapterConflict):
        sampler.add_adapter(name="tiny", path=tmp_path)
    (tmp_path / "tinker.json").write_text('{"base_url": "http://other", "path": "tinker://x"}')
    with pytest.raises(AdapterError, match="weights are on http://other"):
        sampler.add_adapter(name="v1", path=tmp_path)
    sampler.close()


@pytest.mark.slow
def test_the_bridge_serves_published_weights_as_the_model_server_does(
    server: TinkerServer, session: TinkerSession, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = trained(session, tmp_path, 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "training.tinker.bridge", "--base-url", server.url]
    command += ["--model", "tiny", "--tokenizer", str(tiny_folder), "--port", str(port)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as http:
        try:

            def answers() -> bool:
                assert process.poll() is None
                try:
                    return http.get("/health").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until(answers, limit_s=60.0, what="the bridge to answer")
            body = {"model": "v1", "prompt": list(PROMPT), "max_tokens": 6, "seed": 2}
            assert http.post("/v1/completions", json=body).status_code == 404
            added = http.post("/v1/adapters", json={"name": "v1", "path": str(folder)})
            assert added.status_code == 201, added.text
            answer = http.post("/v1/completions", json={**body, "return_token_ids": True}).json()
            choice = answer["choices"][0]
            assert choice["weight_version"] == "v1"
            n = len(choice["token_ids"])
            scores = session.forward([as_row((*PROMPT, *choice["token_ids"]))], temperature=1.0)
            found = choice["logprobs"]["sampling_logprobs"]
            assert found == pytest.approx(scores.result()[0][-n:], abs=1e-4)
        finally:
            process.terminate()
            process.wait(30)
