"""Two processes over gloo give the gradient of one, with weights replicated and in shards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.two_ranks import OPTIONS, ROWS, SPEC
from training.llama import load_llama
from training.lora import LoraSpec
from training.losses import build_streams
from training.parallel import shares
from training.passes import forward_backward
from training.trainable import make_trainable

LIMIT_S = 300
ROOT = Path(__file__).parents[2]


def one_process(folder: Path, kind: str) -> tuple[float, dict[str, torch.Tensor]]:
    model = load_llama(folder, dtype=torch.float64)
    named = make_trainable(model, LoraSpec(rank=3) if kind == "adapters" else None)
    with torch.no_grad():
        for number, parameter in enumerate(named.values()):
            generator = torch.Generator().manual_seed(number)
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    for _ in range(2):
        stats = forward_backward(model, ROWS, build_streams(ROWS, SPEC), SPEC, OPTIONS)
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return stats.loss, grads


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        ("sharded", "full"),
        pytest.param("sharded", "adapters", marks=pytest.mark.slow),
        pytest.param("replicated", "adapters", marks=pytest.mark.slow),
    ],
)
def test_two_processes_give_the_gradient_of_one(
    tiny_folder: Path, tmp_path: Path, layout: str, kind: str
) -> None:
    out = tmp_path / "found.pt"
    command = [sys.executable, "-m", "tests.training.two_ranks", layout, kind]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tiny_folder), str(out)],
            cwd=ROOT,
            # A machine whose own name does not resolve still has a loopback device.
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in ranks:
            _, errors = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, errors[-2000:]
    finally:
        for process in ranks:
            process.kill()
    found = torch.load(out)
    loss, expected = one_process(tiny_folder, kind)
    assert found["loss"] == pytest.approx(loss, abs=1e-6)
    assert set(found["gradients"]) == set(expected)
    one = torch.cat([expected[name].flatten() for name in expected])
    two = torch.cat([found["gradients"][name].flatten() for name in expected])
    assert float((one - two).norm() / one.norm()) <= 1e-6
    assert found["norm"] == pytest.approx(float(one.norm()), rel=1e-5)


def test_every_row_is_somebodys_and_nobody_has_much_more() -> None:
    streams = build_streams(ROWS, SPEC)
    parts = shares(streams, 2)
    assert sorted(i for part in parts for i in part) == list(range(len(ROWS)))
    assert abs(len(parts[0]) - len(parts[1])) <= 1
