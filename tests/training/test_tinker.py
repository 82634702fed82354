"""The tinker SDK against our server, and the probe against servers that are wrong on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

tinker = pytest.importorskip("tinker")

from tinker import types  # noqa: E402 # after the skip

from training.tinker import conformance  # noqa: E402
from training.tinker.conformance import Conformance, probe  # noqa: E402
from training.tinker.engine import (  # noqa: E402
    AdamParams,
    Config,
    Datum,
    Engine,
    Passed,
    Training,
)
from training.tinker.server import TinkerServer  # noqa: E402


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


def service_of(server: TinkerServer) -> Any:
    return tinker.ServiceClient(base_url=server.url, api_key="tml-local")


@pytest.fixture
def server(tiny_folder: Path) -> Iterator[TinkerServer]:
    with TinkerServer(Engine(tiny_folder)) as started:
        yield started


class Normalises(Engine):
    """Divides each sequence by the sum of its weights, as one known server does."""

    def loss(self, lp_T: Tensor, datum: Datum, loss_fn: str, config: Config) -> Tensor:
        weights = datum.inputs.get("weights") or datum.inputs.get("advantages") or (1.0,)
        return super().loss(lp_T, datum, loss_fn, config) / max(sum(weights), 1e-9)


class IgnoresClip(Engine):
    """Takes the learning rate and forgets the clip."""

    def optim_step(self, training: Training, adam: AdamParams) -> dict[str, float]:
        return super().optim_step(training, replace(adam, grad_clip_norm=0.0))


class Merges(Engine):
    """Runs all calls before a step under the loss of the first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pending: dict[int, list[tuple[Sequence[Datum], str, Config]]] = {}

    def forward_backward(
        self,
        training: Training,
        data: Sequence[Datum],
        loss_fn: str,
        config: Config,
        *,
        is_forward_only: bool,
    ) -> Passed:
        passed = super().forward_backward(training, data, loss_fn, config, is_forward_only=True)
        if not is_forward_only:
            self.pending.setdefault(id(training), []).append((data, loss_fn, config))
        return passed

    def optim_step(self, training: Training, adam: AdamParams) -> dict[str, float]:
        calls = self.pending.pop(id(training), [])
        for data, _, _ in calls:
            _, first, config = calls[0]
            filled = [
                replace(
                    d, inputs={**dict.fromkeys(("logprobs", "advantages"), zeros(d)), **d.inputs}
                )
                for d in data
            ]
            super().forward_backward(training, filled, first, config, is_forward_only=False)
        return super().optim_step(training, adam)


class AllWrong(Merges, IgnoresClip, Normalises):
    """Everything at once."""


def zeros(datum: Datum) -> tuple[float, ...]:
    return (0.0,) * len(datum.tokens)


def probed(engine: Engine) -> Conformance:
    with TinkerServer(engine) as server:
        return probe(service_of(server), "tiny")


def test_our_own_server_may_be_trusted_with_every_route(server: TinkerServer) -> None:
    found = probe(service_of(server), "tiny")
    assert found == Conformance("sum", True, True, False, ("D", "A", "C", "B"))
    assert found.refusal(clip_norm=1.0) == ""
    assert json.loads(json.dumps(found.to_json()))["routes"] == ["D", "A", "C", "B"]


def test_a_server_that_is_wrong_in_every_way_is_refused_with_the_reasons(tiny_folder: Path) -> None:
    found = probed(AllWrong(tiny_folder))
    assert (found.route, found.loss_scale) == (None, "normalised")
    assert (found.honours_clip, set(found.refused)) == (False, {"A", "B", "C", "D"})
    said = found.refusal(clip_norm=0.0)
    assert said.startswith("No ECHO route is exact on this server.")
    assert "divided by the sum of its weights" in said
    assert "It ignores grad_clip_norm." in said
    assert "the server divides each sequence by the sum of its weights" in found.refused["A"]


@pytest.mark.slow
def test_each_defect_is_told_from_the_others(tiny_folder: Path) -> None:
    merging = probed(Merges(tiny_folder))
    assert (merging.loss_scale, merging.honours_clip, merging.routes) == (
        "sum",
        True,
        ("D", "C", "B"),
    )
    assert "the two terms do not add up there" in merging.refused["A"]
    clipless = probed(IgnoresClip(tiny_folder))
    assert (clipless.loss_scale, clipless.routes) == ("sum", ("D", "A", "C", "B"))
    assert clipless.refusal(clip_norm=0.0) == ""
    assert "ignores the gradient clip that the manifest asks for (1)" in clipless.refusal(
        clip_norm=1.0
    )


def test_the_exact_routes_give_one_gradient(server: TinkerServer) -> None:
    asked = conformance._Probe(service_of(server), "tiny")
    clients = {name: asked._client() for name in "ABC"}
    clients["A"].forward_backward([asked._policy()], "importance_sampling").result()
    clients["A"].forward_backward([asked._env()], "cross_entropy").result()
    clients["B"].forward_backward([asked._signed()], "cross_entropy").result()
    action, observation = torch.tensor(asked.is_action), torch.tensor(asked.is_observation)
    old = torch.tensor(asked.base)

    def echo(data: list[Any], logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
        ratio = torch.exp(logprobs[0] - old)
        lost = ratio[action].sum() + logprobs[0][observation].sum()
        return -conformance.WEIGHT * lost, {}

    plain = asked._datum({"weights": [1.0] * len(asked.targets)})
    clients["C"].forward_backward_custom([plain], echo).result()
    trained = list(server.engine.trainings.values())[-3:]
    a, b, c = (
        torch.cat([p.grad.flatten() for p in each.parameters if p.grad is not None])
        for each in trained
    )
    assert float(a.norm()) > 0
    assert float((b - a).norm() / a.norm()) <= 1e-6
    assert float((c - a).norm() / a.norm()) <= 1e-6


def test_a_round_of_the_sdk(server: TinkerServer) -> None:
    service = service_of(server)
    asked = conformance._Probe(service, "tiny")
    client = asked._client()
    assert client.get_info().model_data.model_name == "tiny"
    client.forward_backward([asked._env()], "cross_entropy").result()
    norm = client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics
    assert norm is not None
    assert norm["unclipped_grad_l2:mean"] > 0
    state = client.save_state("half").result().path
    before = asked._score(client)
    restored = service.create_training_client_from_state_with_optimizer(state).result()
    assert asked._score(restored) == pytest.approx(before, abs=1e-6)
    for each in (client, restored):
        each.forward_backward([asked._env()], "cross_entropy").result()
        each.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    assert asked._score(restored) == pytest.approx(asked._score(client), abs=1e-6)
    sampler = client.save_weights_and_get_sampling_client().result()
    prompt = types.ModelInput.from_ints(asked.tokens)
    scores = sampler.compute_logprobs(prompt).result()
    assert scores[0] is None
    assert scores[1:] == pytest.approx(asked._score(client)[:-1], abs=1e-5)
    params = types.SamplingParams(max_tokens=4, seed=5)
    twice = [
        sampler.sample(prompt=prompt, num_samples=2, sampling_params=params).result()
        for _ in range(2)
    ]
    tokens = [[list(s.tokens) for s in each.sequences] for each in twice]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 2


def test_a_client_that_failed_is_refused_from_then_on(server: TinkerServer) -> None:
    asked = conformance._Probe(service_of(server), "tiny")
    client = asked._client()
    with pytest.raises(tinker.RequestFailedError, match=r"is not one of"):
        client.forward_backward([asked._env()], "gspo").result()
    with pytest.raises(Exception, match=r"failed"):
        client.optim_step(types.AdamParams()).result()
