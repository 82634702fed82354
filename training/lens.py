"""What a model expected of each token of stored rows: the log-probability it gives to every one.

`python -m training.lens --model DIR [--adapter DIR] --rows FILE --out FILE` reads rows
`[{"index": 0, "ids": [...]}, ...]` and writes, as one JSON document that appears whole or not at
all, `{"rows": [{"index": 0, "logprobs": [null, -0.3, ...], "pieces": ["...", ...]}, ...]}`. The
first token of a row has nothing before it and so no log-probability. Temperature 1, fp32. A line
of JSON is printed after each row, and `{"error": ...}` where it ends without a result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from training.errors import TrainingError
from training.head import chunked_logprobs
from training.llama import Llama, forward_causal, load_llama
from training.lora import add_lora, load_adapter, spec_of_folder
from training.tokenizer import ChatTokenizer


def expected(model: Llama, ids: Sequence[int]) -> list[float | None]:
    """Log-probability of each token after those before it, in nats. Raises ValueError."""
    unknown = [each for each in ids if not 0 <= each < model.config.vocab_size]
    if unknown:
        raise ValueError(f"token {unknown[0]} is not in this model's vocabulary")
    if not ids:
        return []
    with torch.no_grad():
        table = torch.tensor(list(ids), dtype=torch.int64)
        hidden = forward_causal(model, table[:-1])
        found = chunked_logprobs(hidden, model.lm_head.weight, table[1:])
    return [None, *(round(value, 5) for value in found.tolist())]


def load(model: Path, adapter: Path | None) -> Llama:
    """The network of a checkpoint. Raises TrainingError, ValueError or OSError."""
    network = load_llama(model, dtype=torch.float32)
    if adapter is not None:
        add_lora(network, spec_of_folder(adapter))
        load_adapter(network, adapter)
    return network


def look(options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = json.loads(options.rows.read_text())
    network = load(options.model, options.adapter)
    tokenizer = ChatTokenizer.from_folder(options.model)
    found = []
    for done, row in enumerate(rows, start=1):
        pieces = tokenizer.pieces(row["ids"])
        logprobs = expected(network, row["ids"])
        found.append({"index": row["index"], "logprobs": logprobs, "pieces": pieces})
        print(json.dumps({"done": done, "of": len(rows)}), flush=True)
    part = options.out.with_name(options.out.name + ".part")
    part.write_text(json.dumps({"rows": found}))
    os.replace(part, options.out)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.lens", description=__doc__)
    for name in ("model", "rows", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--adapter", type=Path)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    try:
        look(options)
    except (TrainingError, ValueError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
