"""What the environment term costs: a step with ECHO against a policy-only step, identical rows.

Both share one forward pass over packs with a shared prefix. Steps of the two kinds alternate, and
the figure is the ratio of the medians of processor time, which other work on the machine does not
distort as it does wall time. The second figure compares the gradient with the two-pass form: one
pass per loss, row by row, on full logits, by plain autograd.

Runs on SmolLM2 where it is prepared, else on a random Llama with the same depth and the same ratio
of vocabulary to hidden size, so that the head weighs as much.
"""

from __future__ import annotations

import os

# Before torch is imported: threads that spin while they wait would count as work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.figures import Figure
from training import objective
from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.llama import Llama, LlamaConfig, forward_packed
from training.lora import LoraSpec
from training.losses import build_streams
from training.prepare import is_ready
from training.types import ObjectiveSpec, PolicyLoss, Row, RowStatus, TokenKind

OVERHEAD_BAR = 1.15
GRADIENT_BAR = 1e-5
REPEATS = 5
ATTEMPTS = 8
PREFIX_TOKENS = 220
TASK_TOKENS = 30
TURNS = "AAAAAAAASSSEEEEEEEEEEEEEEESSSSS" * 2 + "AAAAAAAAA"
"""Two commands with their output, then an answer: 25 action and 30 environment tokens."""
KINDS = {
    "A": TokenKind.ACTION,
    "E": TokenKind.ENV_OUTPUT,
    "S": TokenKind.SCAFFOLD,
}


def run() -> Iterator[Figure]:
    """Both figures."""
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    with _model() as folder:
        session = LocalSession(
            ModelSpec(folder, LoraSpec(), budget_tokens=2048, measures_entropy=False)
        )
        _disturb(session)
        rows = _rows(session.model.config.vocab_size)
        echo = ObjectiveSpec(lambda_env=0.05, policy_loss=PolicyLoss.REINFORCE)
        policy_only = replace(echo, lambda_env=0.0)
        yield Figure(
            "echo_overhead.step_ratio", _ratio(session, rows, echo, policy_only), OVERHEAD_BAR
        )
        yield Figure(
            "echo_overhead.gradient_error", _gradient_error(session, rows, echo), GRADIENT_BAR
        )


def _ratio(
    session: LocalSession, rows: list[Row], echo: ObjectiveSpec, policy_only: ObjectiveSpec
) -> float:
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(-1, REPEATS):  # one pair to warm up
        for spec in (policy_only, echo):
            started = time.process_time()
            session.forward_backward(rows, build_streams(rows, spec), spec).result()
            session.optim_step(AdamSpec(learning_rate=0.0)).result()
            if repeat >= 0:
                seconds[spec.lambda_env > 0].append(time.process_time() - started)
    return statistics.median(seconds[True]) / statistics.median(seconds[False])


def _gradient_error(session: LocalSession, rows: list[Row], echo: ObjectiveSpec) -> float:
    rows = rows[:4]
    session.forward_backward(rows, build_streams(rows, echo), echo).result()
    one = _take_gradient(session)
    for spec in (replace(echo, lambda_env=0.0), replace(echo, use_rl=False)):
        streams = build_streams(rows, spec)
        for row, stream in zip(rows, streams.rows, strict=True):
            hidden_TH = forward_packed(session.model, torch.tensor(row.ids), [])
            logits_TV = session.model.lm_head(hidden_TH)
            parts = objective.from_logits([logits_TV], [row.ids], [stream], spec)
            parts.loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    two = _take_gradient(session)
    return float((one - two).norm() / two.norm())


def _take_gradient(session: LocalSession) -> Tensor:
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in session.parameters]
    for parameter in session.parameters:
        parameter.grad = None
    return torch.cat([part.flatten() for part in parts])


def _disturb(session: LocalSession) -> None:
    """Leave the start, where B = 0 hides half of the gradient."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in session.parameters:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.01)


def _rows(vocabulary: int) -> list[Row]:
    random = Random(0)

    def tokens(count: int) -> list[int]:
        return [random.randrange(vocabulary) for _ in range(count)]

    prompt = tokens(PREFIX_TOKENS + TASK_TOKENS)
    kinds = (*[TokenKind.CONTEXT] * len(prompt), *(KINDS[role] for role in TURNS))
    return [
        Row(
            rollout=str(attempt),
            group="task",
            reward=float(attempt % 2),
            status=RowStatus.OK,
            ids=(*prompt, *tokens(len(TURNS))),
            kinds=kinds,
            logprobs=None,
        )
        for attempt in range(ATTEMPTS)
    ]


@contextmanager
def _model() -> Iterator[Path]:
    data = Path(os.environ.get("SWITCHBACK_DATA", Path(__file__).parents[1] / "var"))
    prepared = Path(os.environ.get("SWITCHBACK_MODEL_DIR", data / "models" / "smollm2-135m"))
    if is_ready(prepared):
        yield prepared
        return
    with tempfile.TemporaryDirectory() as folder:
        _write_stand_in(Path(folder))
        yield Path(folder)


def _write_stand_in(folder: Path) -> None:
    """SmolLM2 at a third of its width: every matrix shrinks alike, so their shares stay."""
    config = LlamaConfig(
        vocab_size=16384,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=30,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    model = Llama(config)
    save_file(
        {name: tensor.detach().clone() for name, tensor in model.named_parameters()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config.to_hf()), encoding="utf-8")
