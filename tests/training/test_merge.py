"""Merged weights say the same as base and adapter, and a merge that does not is thrown away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from training import merge
from training.backends.local import LocalSession, ModelSpec
from training.errors import CheckpointError
from training.llama import forward_packed, load_llama
from training.lora import LoraSpec


@pytest.fixture
def adapter(tiny_folder: Path, tmp_path: Path) -> Path:
    """Far from the base, so that a merge which does nothing is seen."""
    session = LocalSession(ModelSpec(tiny_folder, LoraSpec(rank=4, seed=3)))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in session.parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return session.publish(tmp_path, 1).result().adapter


def logits(folder: Path) -> torch.Tensor:
    model = load_llama(folder, dtype=torch.float32)
    with torch.no_grad():
        table: torch.Tensor = model.lm_head(forward_packed(model, torch.arange(20), []))
    return table


def test_a_merged_model_is_a_whole_folder_with_equal_logits(
    tiny_folder: Path, tmp_path: Path, adapter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "merged"
    arguments = ["--model", str(tiny_folder), "--adapter", str(adapter), "--out", str(out)]
    assert merge.main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert 0.0 <= told["max_logit_difference"] < 1e-4
    session = LocalSession(ModelSpec(tiny_folder, LoraSpec(rank=4), initial_adapter=adapter))
    with torch.no_grad():
        expected = session.model.lm_head(forward_packed(session.model, torch.arange(20), []))
    assert torch.allclose(logits(out), expected, atol=1e-4)
    assert not torch.allclose(logits(out), logits(tiny_folder), atol=1e-2)
    assert (out / "config.json").read_bytes() == (tiny_folder / "config.json").read_bytes()
    assert (out / "tokenizer.json").exists()


def test_a_merge_that_moves_a_logit_is_not_kept(
    tiny_folder: Path, tmp_path: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "MOST", -1.0)
    with pytest.raises(CheckpointError, match="not kept"):
        merge.merge(tiny_folder, adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
