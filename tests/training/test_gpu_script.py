"""The script for a CUDA device runs from end to end, on the CPU with a toy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu


def test_a_dry_run_reports_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--dry-run", "--out", str(out)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [json.loads(line) for line in out.read_text().splitlines()] == lines
    names = {line["name"] for line in lines}
    for kind in ("full", "lora"):
        for figure in ("tokens_per_s", "mfu", "echo_over_grpo", "peak_memory_gb", "publish_s"):
            assert f"gpu.toy.{kind}.{figure}" in names


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err
