"""Training every weight: the gradient of plain autograd, and files that fit together again."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.builders import make_step
from tests.training.test_local_backend import relative, separate_rows
from tests.training.test_runner import Supervise, Supervisor, supervisors
from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.errors import ConfigurationError
from training.jobs import client
from training.jobs.client import JobState, JobStatus
from training.jobs.folder import JobFolder
from training.jobs.sessions import model_spec
from training.llama import load_llama
from training.losses import build_streams
from training.manifest import BudgetPart, ExecutionPart, Manifest, ModelPart, OptimiserPart
from training.rows import read_rows
from training.schedule import RateSpec
from training.types import ObjectiveSpec

__all__ = ["supervisors"]  # a fixture


def full_session(folder: Path, *, budget: int = 1000) -> LocalSession:
    return LocalSession(
        ModelSpec(folder, None, dtype=torch.float64, budget_tokens=budget, head_chunk=5)
    )


def gradient(opened: LocalSession) -> Tensor:
    return torch.cat([p.grad.flatten() for p in opened.parameters if p.grad is not None])


@pytest.mark.parametrize(("budget", "shared"), [(1, 12), (1000, 12), (60, 150)])
def test_the_gradient_is_that_of_separate_rows(tiny_folder: Path, budget: int, shared: int) -> None:
    spec = ObjectiveSpec(lambda_env=0.3, policy_temperature=0.7)
    rows = [replace(row, logprobs=None) for row in make_step(shared=shared)]
    packed, plain = full_session(tiny_folder, budget=budget), full_session(tiny_folder)
    stats = packed.forward_backward(rows, build_streams(rows, spec), spec).result()
    assert stats.loss == pytest.approx(separate_rows(plain, rows, spec), abs=1e-10)
    # The head is tied to the embedding: one parameter with a gradient from both ends.
    assert len(gradient(packed)) == sum(p.numel() for p in packed.parameters)
    assert relative(gradient(packed), gradient(plain)) <= 1e-10


def test_a_saved_state_goes_on_bit_for_bit_and_publishes_a_model(
    tiny_folder: Path, tmp_path: Path
) -> None:
    rows, spec = make_step(), ObjectiveSpec()

    def step(opened: LocalSession) -> None:
        opened.forward_backward(rows, build_streams(rows, spec), spec)
        opened.optim_step(AdamSpec(learning_rate=1e-3)).result()

    straight = full_session(tiny_folder)
    step(straight)
    straight.save_state(tmp_path / "state").result()
    other = full_session(tiny_folder)
    other.load_state(tmp_path / "state").result()
    for opened in (straight, other):
        step(opened)
    pairs = list(zip(straight.parameters, other.parameters, strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    version = straight.publish(tmp_path, 1).result()
    published = load_llama(version.adapter, dtype=torch.float64)
    assert torch.equal(published.lm_head.weight, straight.model.lm_head.weight)
    assert (version.adapter / "tokenizer.json").exists()


def job_manifest(folder: Path, **execution: object) -> Manifest:
    return Manifest(
        model=ModelPart(folder=str(folder)),
        lora=None,
        optimiser=OptimiserPart(rate=RateSpec(base=1e-3)),
        execution=ExecutionPart(threads=1, **execution),  # type: ignore[arg-type] # by name
        budgets=BudgetPart(steps=2),
    )


def result_of(supervisor: Supervisor) -> JobStatus:
    assert supervisor.run(supervisor.start()) == 0, supervisor.log()
    assert supervisor.asked == [1, 2]
    assert supervisor.steps_reported() == [1, 2]
    status = client.status(supervisor.folder)
    assert status.state is JobState.DONE
    return status


def test_a_job_publishes_whole_models_and_goes_on_from_its_checkpoint(
    tiny_folder: Path, tmp_path: Path, supervisors: Supervise
) -> None:
    supervisor = supervisors(tmp_path / "job", job_manifest(tiny_folder))
    assert supervisor.run(supervisor.start_doomed("saving:2")) == -signal.SIGKILL
    status = result_of(supervisor)
    assert status.adapter is not None
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {
        path.name for path in status.adapter.iterdir()
    }
    # Step by step in this process: what the job did, bit for bit, in spite of the kill.
    alone = LocalSession(model_spec(job_manifest(tiny_folder)))
    for step in (1, 2):
        rows = read_rows(JobFolder(supervisor.folder).rows_file(step).read_text("utf-8"))
        spec = ObjectiveSpec()
        alone.forward_backward(rows, build_streams(rows, spec), spec).result()
        alone.optim_step(AdamSpec(learning_rate=1e-3)).result()
    assert alone.publish(tmp_path, 2).result().sha256 == status.adapter_sha256
    published = load_llama(status.adapter, dtype=torch.float32)
    assert torch.equal(published.lm_head.weight, alone.model.lm_head.weight)


@pytest.mark.slow
def test_whole_models_in_shards_are_the_same_models(
    tiny_folder: Path, tmp_path: Path, supervisors: Supervise
) -> None:
    one = result_of(supervisors(tmp_path / "one", job_manifest(tiny_folder)))
    sharded = job_manifest(tiny_folder, backend="torchrun", processes=2, shard="fsdp2")
    two = result_of(supervisors(tmp_path / "two", sharded))
    assert one.adapter is not None
    assert two.adapter is not None
    ours = load_llama(one.adapter, dtype=torch.float32)
    theirs = load_llama(two.adapter, dtype=torch.float32)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


def test_an_adapter_to_go_on_from_is_refused(tiny_folder: Path) -> None:
    manifest = job_manifest(tiny_folder)
    wrong = replace(manifest, model=replace(manifest.model, initial_adapter="somewhere"))
    with pytest.raises(ConfigurationError, match="merged weights"):
        wrong.validate()
    assert Manifest.from_json(manifest.to_json()) == manifest
