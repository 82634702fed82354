"""Peak memory of the loss for a short and a long sequence, counted by torch's allocator.

What grows with the sequence are the hidden states and their gradient, which belong to the body; the
head's own share must not. For comparison the plain form, which writes down all logits.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.training.part import begin, report
from training.head import DEFAULT_CHUNK, HeadGradient

VOCABULARY, HIDDEN = 49152, 576
SHORT, LONG = 256, 1024


def peak_bytes(work: Callable[[], object]) -> int:
    """Most bytes that torch held above what it held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    events = sorted((e for e in trace if e.get("name") == "[memory]"), key=lambda e: e["ts"])
    if not events:
        return 0
    first = events[0]["args"]
    before = first["Total Allocated"] - first["Bytes"]
    return max(int(e["args"]["Total Allocated"]) for e in events) - int(before)


def chunked(hidden_NH: Tensor, weight_VH: Tensor, targets_N: Tensor) -> None:
    """The head as the trainer runs it."""
    grad_NH = torch.zeros_like(hidden_NH)
    head = HeadGradient(weight_VH)
    head.add(
        hidden_NH,
        grad_NH,
        torch.arange(len(targets_N)),
        targets_N,
        lambda lp_C, _: torch.full_like(lp_C, -1.0 / len(targets_N)),
    )
    head.finish()
    weight_VH.grad = None


def plain(hidden_NH: Tensor, weight_VH: Tensor, targets_N: Tensor) -> None:
    """All logits at once."""
    leaf = hidden_NH.clone().requires_grad_()
    F.cross_entropy(leaf @ weight_VH.T, targets_N).backward()  # type: ignore[no-untyped-call]
    weight_VH.grad = None


def head_bytes(length: int, *, vocabulary: int = VOCABULARY, hidden: int = HIDDEN) -> int:
    """Peak of the head alone: without the hidden states' gradient, which the body owns."""
    generator = torch.Generator().manual_seed(0)
    hidden_NH = torch.randn(length, hidden, generator=generator)
    weight_VH = torch.randn(vocabulary, hidden, generator=generator).requires_grad_()
    targets_N = torch.randint(vocabulary, (length,), generator=generator)
    grad_bytes = hidden_NH.numel() * 4
    return peak_bytes(lambda: chunked(hidden_NH, weight_VH, targets_N)) - grad_bytes


def main() -> None:
    """Figures of both lengths."""
    begin()
    short, long = head_bytes(SHORT), head_bytes(LONG)
    limit = DEFAULT_CHUNK * VOCABULARY * 12 + VOCABULARY * HIDDEN * 4
    report("memory.loss_long_over_short", long / short, 1.02)
    report("memory.loss_over_limit", long / limit, 1.0)
    hidden_NH = torch.randn(LONG, HIDDEN)
    weight_VH = torch.randn(VOCABULARY, HIDDEN).requires_grad_()
    targets_N = torch.randint(VOCABULARY, (LONG,))
    naive = peak_bytes(lambda: plain(hidden_NH, weight_VH, targets_N))
    report("memory.loss_mb", long / 1e6)
    report("memory.plain_loss_mb", naive / 1e6)


if __name__ == "__main__":
    main()
