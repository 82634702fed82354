"""The script for a CUDA device: `python -m benchmarks.gpu [--out FILE]`, 8 minutes at most.

SmolLM2-135M (if it is prepared) and a random model of 0.6B shape, bf16 weights: tokens per second
with full weights and with adapters, share of the device's peak (MFU), ECHO over GRPO, peak memory,
time to write a checkpoint and to publish an adapter. One JSON line per figure, at once, so that a
run that is cut short leaves what it had. A part begins only while time for it is left.

`--dry-run` runs every line on the CPU with a toy; it measures nothing and is a test. Nothing here
has been run on a CUDA device yet.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TextIO

import torch
from safetensors.torch import save_file

from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.llama import Llama, LlamaConfig
from training.lora import LoraSpec
from training.losses import build_streams
from training.prepare import is_ready, make_tiny
from training.types import ObjectiveSpec, Row, RowStatus, TokenKind

BUDGET_S = 480.0
PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
"""Dense bf16, by a part of the device's name."""
ECHO = ObjectiveSpec(lambda_env=0.05)
GRPO = replace(ECHO, lambda_env=0.0)
ADAM = AdamSpec(learning_rate=1e-6)


@dataclass(frozen=True)
class Size:
    """How much one step holds."""

    groups: int
    attempts: int
    prompt: int
    completion: int
    budget_tokens: int
    head_chunk: int
    repeats: int


LARGE = Size(4, 16, 512, 512, 16384, 1024, 3)
SMALL = Size(2, 2, 12, 24, 64, 16, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 2 without a CUDA device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="a toy on the CPU")
    parser.add_argument("--model", type=Path, help="folder of the prepared SmolLM2-135M")
    parser.add_argument("--out", type=Path, help="write the lines here as well")
    options = parser.parse_args(argv)
    if not options.dry_run and not torch.cuda.is_available():
        print("no CUDA device: nothing is measured (--dry-run runs the script)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        sink = options.out.open("w", encoding="utf-8") if options.out else None
        try:
            _run(Path(folder), options.model, is_dry=options.dry_run, sink=sink)
        finally:
            if sink is not None:
                sink.close()
    return 0


def _run(work: Path, smollm2: Path | None, *, is_dry: bool, sink: TextIO | None) -> None:
    stop_at = time.monotonic() + BUDGET_S

    def report(name: str, value: float | str | None) -> None:
        line = json.dumps({"name": f"gpu.{name}", "value": value})
        print(line, flush=True)
        if sink is not None:
            print(line, file=sink, flush=True)

    device = "cpu" if is_dry else "cuda"
    report("device", "cpu" if is_dry else torch.cuda.get_device_name())
    size = SMALL if is_dry else LARGE
    for name, folder in _models(work, smollm2, is_dry=is_dry):
        for kind, lora in (("full", None), ("lora", LoraSpec(rank=32, alpha=32.0))):
            if time.monotonic() > stop_at:
                report(f"{name}.{kind}", "left out: the time is used up")
                continue
            spec = ModelSpec(
                folder,
                lora,
                dtype=torch.bfloat16,
                device=device,
                budget_tokens=size.budget_tokens,
                head_chunk=size.head_chunk,
                measures_entropy=False,
            )
            _measure(f"{name}.{kind}", spec, size, work, report)


def _measure(
    name: str,
    spec: ModelSpec,
    size: Size,
    work: Path,
    report: Callable[[str, float | str | None], None],
) -> None:
    """Figures of one way to train one model; the session is gone afterwards."""
    session = LocalSession(spec)
    rows = _rows(session.model.config.vocab_size, size)
    is_cuda = spec.device == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()

    def step(objective: ObjectiveSpec) -> int:
        stats = session.forward_backward(rows, build_streams(rows, objective), objective).result()
        session.optim_step(ADAM).result()
        return stats.packed_tokens

    tokens = step(ECHO)  # compiles, and fills the allocator
    seconds = {
        label: min(_timed(lambda o=o: step(o), is_cuda) for _ in range(size.repeats))  # type: ignore[misc] # the default binds it
        for label, o in (("grpo", GRPO), ("echo", ECHO))
    }
    report(f"{name}.tokens_per_s", tokens / seconds["echo"])
    report(f"{name}.row_tokens_per_s", sum(len(row.ids) for row in rows) / seconds["echo"])
    report(f"{name}.echo_over_grpo", seconds["echo"] / seconds["grpo"])
    flops = _flops(session, rows, tokens, is_full=spec.lora is None)
    peak = _peak_flops() if is_cuda else None
    report(f"{name}.mfu", None if peak is None else flops / seconds["echo"] / peak)
    report(f"{name}.peak_memory_gb", torch.cuda.max_memory_allocated() / 1e9 if is_cuda else None)
    report(
        f"{name}.checkpoint_s",
        _timed(lambda: session.save_state(work / f"{name}.state").result(), is_cuda),
    )
    report(
        f"{name}.publish_s",
        _timed(lambda: session.publish(work / f"{name}.published", 1).result(), is_cuda),
    )


def _timed(work: Callable[[], object], is_cuda: bool) -> float:
    if is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _flops(session: LocalSession, rows: Sequence[Row], tokens: int, *, is_full: bool) -> float:
    """Of a step with ECHO: 6 (4 with adapters) per body weight and token, and the head's rows."""
    config = session.model.config
    head = config.vocab_size * config.hidden_size
    everything = sum(p.numel() for p in session.model.parameters())
    body = everything - head * (1 if config.tie_word_embeddings else 2)
    streams = build_streams(rows, ECHO)
    scored = sum(len(s.rl_targets) + len(s.env_targets) for s in streams.rows)
    width = config.num_attention_heads * config.head_dim
    attention = 6 * config.num_hidden_layers * width * (len(rows[0].ids)) * tokens
    return (6 if is_full else 4) * (body * tokens + head * scored) + attention


def _peak_flops() -> float | None:
    name = torch.cuda.get_device_name()
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


def _rows(vocabulary: int, size: Size) -> list[Row]:
    random = Random(0)
    half = size.completion // 2
    kinds = (
        *[TokenKind.CONTEXT] * size.prompt,
        *[TokenKind.ACTION, TokenKind.ENV_OUTPUT] * half,
    )

    def tokens(count: int) -> list[int]:
        return [random.randrange(vocabulary) for _ in range(count)]

    rows = []
    for group in range(size.groups):
        prompt = tokens(size.prompt)
        for attempt in range(size.attempts):
            rows.append(
                Row(
                    rollout=f"{group}-{attempt}",
                    group=str(group),
                    reward=float(attempt % 2),
                    status=RowStatus.OK,
                    ids=(*prompt, *tokens(2 * half)),
                    kinds=kinds,
                    logprobs=None,
                )
            )
    return rows


def _models(work: Path, smollm2: Path | None, *, is_dry: bool) -> Iterator[tuple[str, Path]]:
    if is_dry:
        yield "toy", make_tiny(work / "toy")
        return
    if smollm2 is not None and is_ready(smollm2):
        yield "smollm2-135m", smollm2
    folder = work / "shape-0.6b"
    folder.mkdir()
    _write_random(folder)
    yield "shape-0.6b", folder


def _write_random(folder: Path) -> None:
    """A random Llama with the sizes of Qwen3-0.6B."""
    config = LlamaConfig(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        eos_token_id=0,
    )
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in Llama(config).named_parameters()}
    generator = torch.Generator("cuda").manual_seed(0)
    tensors = {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if name.endswith("norm.weight")
        else (torch.randn(shape, generator=generator, device="cuda") * 0.02).bfloat16().cpu()
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_hf()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
