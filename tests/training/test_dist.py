"""Two processes give the gradient and the step of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles import dist_gradient
from tests.training.test_runner import Supervisor, wait_until
from training.backends.dist import shares
from training.backends.local import LocalSession
from training.jobs import client
from training.jobs.client import JobState
from training.manifest import BudgetPart, ExecutionPart, LoraPart, Manifest, ModelPart

ROOT = Path(__file__).resolve().parents[2]


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 4))
def test_every_row_has_one_rank(lengths: list[int], world: int) -> None:
    found = shares(lengths, world)
    assert sorted(index for each in found for index in each) == list(range(len(lengths)))
    held = [sum(lengths[index] for index in each) for each in found]
    assert max(held, default=0) - min(held, default=0) <= max(lengths, default=0)


@pytest.mark.slow
def test_two_processes_give_the_gradient_of_one(tiny_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "two.pt"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "tests.doubles.dist_gradient", "--model", str(tiny_folder), "--out", str(out)),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)
    two = torch.load(out)
    alone = LocalSession(dist_gradient.model_spec(tiny_folder))
    dist_gradient.disturb(alone)
    one = dist_gradient.train(alone, world=2)
    assert relative(two["gradient"], one["gradient"]) <= 1e-6
    assert torch.allclose(two["weights"], one["weights"], atol=1e-5)
    # Cut into other pieces, the sums round otherwise; the statistics are those of all rows.
    whole = LocalSession(dist_gradient.model_spec(tiny_folder))
    dist_gradient.disturb(whole)
    undivided = dist_gradient.train(whole)
    assert relative(two["gradient"], undivided["gradient"]) <= 1e-5
    assert torch.allclose(two["stats"], undivided["stats"], rtol=1e-5)


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.slow
def test_a_job_runs_over_two_processes_and_survives_a_kill(
    tiny_folder: Path, tmp_path: Path
) -> None:
    manifest = Manifest(
        model=ModelPart(folder=str(tiny_folder)),
        lora=LoraPart(rank=4),
        execution=ExecutionPart(backend="torchrun", processes=2, threads=1),
        budgets=BudgetPart(steps=2),
    )
    client.submit(tmp_path / "job", manifest)
    supervisor = Supervisor(tmp_path / "job")
    first = supervisor.start()
    wait_until(lambda: client.pending_need(supervisor.folder) is not None)
    pid = client.status(supervisor.folder).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert first.wait(timeout=300) != 0  # torchrun ends the other rank with it
    assert supervisor.run(supervisor.start()) == 0, supervisor.log()
    status = client.status(supervisor.folder)
    assert status.state is JobState.DONE
    assert supervisor.asked == [1, 2]
    assert supervisor.steps_reported() == [1, 2]
