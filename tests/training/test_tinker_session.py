"""A job's session over the tinker SDK: its routes against the definition, its state, its waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("tinker")

from tests.training.builders import make_step  # after the skip
from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.backends.tinker import TinkerSession, TinkerSpec
from training.errors import CheckpointError, ConfigurationError, RemoteError
from training.lora import LoraSpec
from training.losses import build_streams
from training.tinker.engine import Engine
from training.tinker.routes import choose
from training.tinker.server import TinkerServer
from training.types import (
    AdvantageMode,
    AdvantageSpec,
    MismatchCorrection,
    ObjectiveSpec,
    PolicyLoss,
    Row,
)

RANK, SEED = 4, 5
ECHO = ObjectiveSpec(lambda_env=0.3, advantage=AdvantageSpec(mode=AdvantageMode.STD))


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


@pytest.fixture
def server(tiny_folder: Path) -> Iterator[TinkerServer]:
    with TinkerServer(Engine(tiny_folder)) as started:
        yield started


def session_of(server: TinkerServer, route: str = "A", **changes: object) -> TinkerSession:
    spec = TinkerSpec(
        base_url=server.url,
        api_key="",
        model="tiny",
        rank=RANK,
        seed=SEED,
        name="job",
        route=route,
        timeout_s=60.0,
    )
    return TinkerSession(replace(spec, **changes))  # type: ignore[arg-type] # fields by name


def local_of(folder: Path) -> LocalSession:
    # The server's alpha is 32, and equal seeds give equal adapters.
    return LocalSession(ModelSpec(folder, LoraSpec(rank=RANK, alpha=32.0, seed=SEED)))


def off_policy(rows: list[Row]) -> list[Row]:
    """Log-probs of a sampler that had other weights: ratios on both sides of the clip."""
    return [
        replace(
            row,
            logprobs=tuple(
                -5.5 + 0.4 * ((i * 7) % 5 - 2) if kind == "action" else 0.0
                for i, kind in enumerate(row.kinds)
            ),
        )
        for row in rows
    ]


def gradient(server: TinkerServer) -> torch.Tensor:
    trained = list(server.engine.trainings.values())[-1]
    return torch.cat([p.grad.flatten() for p in trained.parameters if p.grad is not None])


def expected(
    folder: Path, rows: list[Row], spec: ObjectiveSpec
) -> tuple[torch.Tensor, LocalSession]:
    session = local_of(folder)
    stats = session.forward_backward(rows, build_streams(rows, spec), spec).result()
    assert stats.n_env_tokens > 0
    found = [p.grad.flatten() for p in session.parameters if p.grad is not None]
    return torch.cat(found), session


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("route", ["A", "C", "D"])
@pytest.mark.parametrize("loss", [PolicyLoss.PPO_CLIP, PolicyLoss.TRUNCATED_IMPORTANCE])
def test_exact_routes_give_the_gradient_of_the_local_backend_off_policy(
    server: TinkerServer, tiny_folder: Path, route: str, loss: PolicyLoss
) -> None:
    rows = off_policy(make_step(seed=1))
    spec = replace(ECHO, policy_loss=loss)
    wanted, local = expected(tiny_folder, rows, spec)
    streams = build_streams(rows, spec)
    session = session_of(server, route)
    stats = session.forward_backward(rows, streams, spec).result()
    assert off(gradient(server), wanted) <= 1e-5
    ours = local.forward_backward(rows, streams, spec).result()
    assert stats.loss == pytest.approx(ours.loss, abs=1e-5)
    assert stats.env_nll_sum == pytest.approx(ours.env_nll_sum, abs=1e-3)
    assert stats.clipped == ours.clipped > 0
    assert sorted(stats.log_ratios) == pytest.approx(sorted(ours.log_ratios), abs=1e-4)


def test_signed_weights_are_exact_for_reinforce_and_not_for_a_ratio(
    server: TinkerServer, tiny_folder: Path
) -> None:
    rows = off_policy(make_step(seed=1))
    for loss, is_exact in ((PolicyLoss.REINFORCE, True), (PolicyLoss.IMPORTANCE, False)):
        spec = replace(ECHO, policy_loss=loss)
        wanted, _ = expected(tiny_folder, rows, spec)
        session_of(server, "B").forward_backward(rows, build_streams(rows, spec), spec).result()
        assert (off(gradient(server), wanted) <= 1e-5) is is_exact


def test_a_loss_of_our_own_holds_the_distance_to_the_base(
    server: TinkerServer, tiny_folder: Path
) -> None:
    rows = off_policy(make_step(seed=2))
    spec = replace(
        ECHO, policy_loss=PolicyLoss.DPPO, kl_coef=0.5, mismatch=MismatchCorrection.TRUNCATE
    )
    session, local = session_of(server, "D"), local_of(tiny_folder)
    ours = local.scored(rows, spec).result()
    scored = session.scored(rows, spec).result()
    for theirs, own in zip(scored, ours, strict=True):
        assert theirs.reference_logprobs == pytest.approx(own.reference_logprobs, abs=1e-4)
        assert theirs.trainer_logprobs == pytest.approx(own.trainer_logprobs, abs=1e-4)
    wanted, _ = expected(tiny_folder, ours, spec)
    session.forward_backward(scored, build_streams(scored, spec), spec).result()
    assert off(gradient(server), wanted) <= 1e-4


def test_rows_without_a_sampler_have_a_ratio_of_one(
    server: TinkerServer, tiny_folder: Path
) -> None:
    rows = [replace(row, logprobs=None) for row in make_step(seed=3)]
    wanted, _ = expected(tiny_folder, rows, ECHO)
    for route in "AD":
        session_of(server, route).forward_backward(rows, build_streams(rows, ECHO), ECHO).result()
        assert off(gradient(server), wanted) <= 1e-5


def test_a_lambda_that_changes_by_step_needs_no_new_loss(
    server: TinkerServer, tiny_folder: Path
) -> None:
    rows = off_policy(make_step(seed=3))
    session, total = session_of(server, "D"), torch.zeros(())
    for value in (0.3, 0.1, 0.0):
        spec = replace(ECHO, lambda_env=value)
        session.forward_backward(rows, build_streams(rows, spec), spec).result()
        local = local_of(tiny_folder)
        local.forward_backward(rows, build_streams(rows, spec), spec).result()
        grads = [p.grad.flatten() for p in local.parameters if p.grad is not None]
        total = total + torch.cat(grads)  # gradients add up until a step
    assert off(gradient(server), total) <= 1e-5
    assert len(server.engine.losses) == 1


def test_a_step_moves_as_the_local_one_and_state_goes_on(
    server: TinkerServer, tiny_folder: Path, tmp_path: Path
) -> None:
    steps = [off_policy(make_step(seed=n)) for n in range(3)]
    adam = AdamSpec(learning_rate=1e-2, clip_norm=0.01)
    session, local = session_of(server), local_of(tiny_folder)
    for rows in steps[:2]:
        norms = []
        for each in (session, local):
            each.forward_backward(rows, build_streams(rows, ECHO), ECHO).result()
            norms.append(each.optim_step(adam).result().grad_norm)
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)
        assert norms[0] > adam.clip_norm
    session.save_state(tmp_path / "state").result()
    restored = session_of(server)
    restored.load_state(tmp_path / "state").result()
    for each in (session, restored, local):
        each.forward_backward(steps[2], build_streams(steps[2], ECHO), ECHO).result()
        each.optim_step(adam).result()
    scores = [
        each.forward(steps[0], temperature=1.0).result() for each in (session, restored, local)
    ]
    assert scores[1] == scores[0]
    for theirs, own in zip(scores[0], scores[2], strict=True):
        assert theirs == pytest.approx(own, abs=1e-3)
    version = session.publish(tmp_path / "publish", 2).result()
    pointer = json.loads((version.adapter / "tinker.json").read_text())
    assert pointer["path"].startswith("tinker://")
    assert (pointer["base_url"], pointer["model"]) == (server.url, "tiny")


def test_what_a_server_refuses_or_has_forgotten_is_said(
    server: TinkerServer, tmp_path: Path
) -> None:
    session = session_of(server)
    with pytest.raises(ConfigurationError, match="computes at 1"):
        session.forward(make_step(), temperature=0.7)
    session.save_state(tmp_path / "state").result()
    server.engine.states.clear()
    with pytest.raises(CheckpointError, match="no state is saved under"):
        session_of(server).load_state(tmp_path / "state")
    rows = make_step()
    traced = session_of(server, "D")
    traced.forward_backward(rows, build_streams(rows, ECHO), ECHO).result()
    server.engine.losses.clear()
    with pytest.raises(RemoteError, match=r"no loss .* was created here"):
        traced.forward_backward(rows, build_streams(rows, ECHO), ECHO)


def test_a_route_is_chosen_by_the_server_and_by_the_objective() -> None:
    every = {"allowed": ("D", "A", "C", "B"), "refused": {}, "honours_thresholds": True}
    assert choose(ECHO, is_on_policy=True, **every).route == "D"  # type: ignore[arg-type] # by name
    no_d = {**every, "allowed": ("A", "C", "B"), "refused": {"D": "Route D: none."}}
    assert choose(ECHO, is_on_policy=True, **no_d).route == "A"  # type: ignore[arg-type]
    reinforce = replace(ECHO, policy_loss=PolicyLoss.REINFORCE)
    assert choose(reinforce, is_on_policy=False, **no_d).route == "B"  # type: ignore[arg-type]
    with_kl = replace(ECHO, kl_coef=0.1)
    assert choose(with_kl, is_on_policy=True, **no_d).route == "C"  # type: ignore[arg-type]
    unbounded = {**no_d, "honours_thresholds": False}
    chosen = choose(ECHO, is_on_policy=True, **unbounded)  # type: ignore[arg-type]
    assert chosen.route == "C"
    assert "clip thresholds" in chosen.passed_over["A"]
    only_b = {**every, "allowed": ("B",), "refused": dict.fromkeys("DAC", "No.")}
    assert choose(ECHO, is_on_policy=True, **only_b).route == "B"  # type: ignore[arg-type]
    none = choose(ECHO, is_on_policy=False, **only_b)  # type: ignore[arg-type]
    assert none.route == ""
    assert "rows of older weights" in none.refusal
