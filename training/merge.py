"""Merges an adapter into full weights, in fp32, and says how far the logits moved.

`python -m training.merge --model DIR --adapter DIR --out DIR` writes a model folder that anything
reads which reads the base, and prints one JSON line: the largest difference of a logit between base
with adapter and merged weights, on fixed tokens. In half precision a merge loses up to nearly all
of a small update, so nothing else than fp32 is offered, and a merge that moves a logit by more than
`MOST` is thrown away. The folder appears whole or not at all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from training.checkpoint import write_folder
from training.errors import CheckpointError, TrainingError
from training.llama import Llama, forward_packed, load_llama
from training.lora import LoraLinear, LoraSpec, add_lora, load_adapter, spec_of_folder
from training.trainable import model_files

MOST = 1e-3
"""Of a logit. Sums in another order move one by about 1e-5 of its size."""
PROBES, PROBE_TOKENS = 4, 32


def merge(model: Path, adapter: Path, out: Path) -> float:
    """Write `out`; returns the largest difference of a logit. Raises TrainingError."""
    adapted = load_llama(model, dtype=torch.float32)
    spec: LoraSpec = spec_of_folder(adapter)
    add_lora(adapted, spec)
    load_adapter(adapted, adapter)
    expected = _probe(adapted)
    merged = load_llama(model, dtype=torch.float32)
    _add_deltas(merged, adapted)
    difference = float((_probe(merged) - expected).abs().max())
    if not difference <= MOST:  # also where it is not a number
        raise CheckpointError(
            f"merged weights move a logit by {difference:.3g}, more than {MOST:g}: not kept"
        )
    files = {
        path.name: path.read_bytes()
        for path in model.iterdir()
        if path.is_file() and path.suffix != ".safetensors"
    }
    # The base's own configuration stays: it says more than ours.
    write_folder(out, {**model_files(merged), **files})
    return difference


def _add_deltas(merged: Llama, adapted: Llama) -> None:
    """W + scale * B A, layer by layer."""
    layers = dict(merged.named_modules())
    with torch.no_grad():
        for name, layer in adapted.named_modules():
            if isinstance(layer, LoraLinear):
                weight = layers[name].weight
                assert isinstance(weight, Tensor)
                weight.add_(layer.scale * (layer.lora_B @ layer.lora_A))


def _probe(model: Llama) -> Tensor:
    """Logits on tokens that depend on the vocabulary alone."""
    generator = torch.Generator().manual_seed(0)
    size = model.config.vocab_size
    tables = []
    with torch.no_grad():
        for _ in range(PROBES):
            ids = torch.randint(0, size, (PROBE_TOKENS,), generator=generator)
            tables.append(model.lm_head(forward_packed(model, ids, [])))
    return torch.stack(tables)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.merge", description=__doc__)
    for name in ("model", "adapter", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    try:
        difference = merge(options.model, options.adapter, options.out)
    except TrainingError as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps({"out": str(options.out), "max_logit_difference": difference}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
