"""What a model expected of tokens, against its own logits, in the process that pages start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from training.lens import expected
from training.llama import forward_causal, load_llama
from training.prepare import make_tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("lens") / "tiny")


def test_the_child_says_what_the_logits_say(model: Path, tmp_path: Path) -> None:
    ids = [3, 9, 27, 14, 2]
    rows = tmp_path / "rows"
    rows.write_text(json.dumps([{"index": 4, "ids": ids}, {"index": 5, "ids": []}]))
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "training.lens", "--model", str(model)]
    subprocess.run(
        [*command, "--rows", str(rows), "--out", str(out)],
        check=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    first, second = json.loads(out.read_text())["rows"]
    network = load_llama(model)
    with torch.no_grad():
        logits = network.lm_head(forward_causal(network, torch.tensor(ids)))
    table = torch.log_softmax(logits, dim=-1)
    for place in range(1, len(ids)):
        said = float(table[place - 1, ids[place]])
        assert first["logprobs"][place] == pytest.approx(said, abs=1e-4)
    assert first["logprobs"][0] is None
    assert len(first["pieces"]) == len(ids)
    assert second == {"index": 5, "logprobs": [], "pieces": []}


def test_tokens_of_another_model_are_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="not in this model's vocabulary"):
        expected(load_llama(model), [1, 10_000_000])
