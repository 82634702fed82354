"""What a pass holds is free after it."""

from __future__ import annotations

import gc
from pathlib import Path

import torch

from tests.training.builders import make_step
from tests.training.test_local_backend import pass_over, session
from training.types import ObjectiveSpec


def count_tensors() -> int:
    gc.collect()
    return sum(1 for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))


def test_passes_with_a_shared_root_leave_no_tensors_behind(tiny_folder: Path) -> None:
    """The root's keys once hung in a circle with the nodes that made them: 45 MB a step."""
    spec = ObjectiveSpec(lambda_env=0.05)
    opened = session(tiny_folder, budget=60)
    counts = []
    for _ in range(3):
        stats = pass_over(opened, make_step(shared=150), spec)
        assert stats.packs > 1  # several packs below one root
        counts.append(count_tensors())
    assert counts[1] == counts[2]
