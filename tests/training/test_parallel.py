"""Two processes of the job's own backend against one, with weights replicated and in shards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load

from tests.doubles.ranks import ROWS, SPEC, model_spec, work
from training.backends.local import ADAPTER_FOLDER, MODEL_FOLDER, OPTIM_FILE, LocalSession
from training.losses import build_streams
from training.parallel import balanced, shares

LIMIT_S = 300
ROOT = Path(__file__).parents[2]


def two_processes(
    folder: Path, at: Path, *, layout: str, kind: str, dtype: str = "float64"
) -> dict[str, Any]:
    """What rank 0 found."""
    out = at / "found.pt"
    command = [sys.executable, "-m", "tests.doubles.ranks", "--model", str(folder)]
    command += ["--out", str(out), "--layout", layout, "--kind", kind, "--dtype", dtype]
    ranks = [
        subprocess.Popen(
            [*command, "--rank", str(rank)],
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
    found: dict[str, Any] = torch.load(out, weights_only=False)
    return found


def first_moments(files: dict[str, bytes]) -> torch.Tensor:
    """After one step without clipping: the gradient, up to a factor."""
    tensors = load(files[OPTIM_FILE])
    names = sorted(name for name in tensors if name.endswith("/exp_avg"))
    assert names
    return torch.cat([tensors[name].flatten() for name in names])


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        ("fsdp2", "full"),
        pytest.param("fsdp2", "adapters", marks=pytest.mark.slow),
        pytest.param("ddp", "adapters", marks=pytest.mark.slow),
        pytest.param("ddp", "full", marks=pytest.mark.slow),
    ],
)
def test_two_processes_do_what_one_does(
    tiny_folder: Path, tmp_path: Path, layout: str, kind: str
) -> None:
    two = two_processes(tiny_folder, tmp_path, layout=layout, kind=kind)
    one = work(LocalSession(model_spec(tiny_folder, kind)), tmp_path / "one")

    assert relative(first_moments(two["files"]), first_moments(one["files"])) <= 1e-6
    assert two["norm"] == pytest.approx(one["norm"], rel=1e-6)
    assert two["stats"].loss == pytest.approx(one["stats"].loss, abs=1e-6)
    assert two["stats"].row_tokens == one["stats"].row_tokens
    # Of all rows, whichever rank passed them.
    assert sorted(two["stats"].log_ratios) == pytest.approx(sorted(one["stats"].log_ratios))
    assert len(two["stats"].entropies) == len(one["stats"].entropies)
    for found, expected in zip(two["forward"], one["forward"], strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    for found, expected in zip(two.get("scored", []), one.get("scored", []), strict=True):
        assert found.reference_logprobs == pytest.approx(expected.reference_logprobs, abs=1e-6)
        assert found.trainer_logprobs == pytest.approx(expected.trainer_logprobs, abs=1e-6)

    # Files do not tell how many wrote them, and every rank goes on from them, bit for bit.
    weights = f"{ADAPTER_FOLDER if kind == 'adapters' else MODEL_FOLDER}/"
    assert set(two["files"]) == set(one["files"])
    for name in two["files"]:
        if not name.endswith(".safetensors"):
            assert two["files"][name] == one["files"][name]
            continue
        found, expected = load(two["files"][name]), load(one["files"][name])
        assert {n: t.shape for n, t in found.items()} == {n: t.shape for n, t in expected.items()}
        if name.startswith(weights):
            assert max(float((found[n] - expected[n]).abs().max()) for n in found) <= 1e-6
    assert two["resumed"] == two["straight_on"]
    assert two["resumed"] != two["files"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "adapters"])
def test_half_precision_in_shards_goes_on_bit_for_bit(
    tiny_folder: Path, tmp_path: Path, kind: str
) -> None:
    two = two_processes(tiny_folder, tmp_path, layout="fsdp2", kind=kind, dtype="bfloat16")
    moments = load(two["files"][OPTIM_FILE])
    # Weights that are rounded have masters; adapters are in fp32 beside a base that is not.
    masters = [name for name in moments if name.endswith("/master")]
    assert bool(masters) == (kind == "full")
    assert {moments[name].dtype for name in moments if name.endswith("/exp_avg")} == {torch.float32}
    assert two["resumed"] == two["straight_on"]
    assert two["resumed"] != two["files"]


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 4))
def test_every_row_has_one_rank_and_nobody_has_much_more(lengths: list[int], world: int) -> None:
    found = balanced(lengths, world)
    assert sorted(index for each in found for index in each) == list(range(len(lengths)))
    held = [sum(lengths[index] for index in each) for each in found]
    assert max(held, default=0) - min(held, default=0) <= max(lengths, default=0)


def test_rows_are_shared_by_what_their_passes_need() -> None:
    parts = shares(build_streams(ROWS, SPEC), 2)
    assert sorted(i for part in parts for i in part) == list(range(len(ROWS)))
    assert abs(len(parts[0]) - len(parts[1])) <= 1
