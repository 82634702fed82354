"""What ECHO costs beside GRPO, and what packing a group as a tree saves; every weight trained.

- ECHO against GRPO: rows of 256 tokens that share nothing, three eighths of them observations and
  three eighths actions, one forward pass for both losses.
- Tree: one group of eight with a shared prompt four times as long as a completion, against the same
  rows with a first token of their own, which share nothing. The bar is a share of the token ratio.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.training.part import begin, in_turns, report
from benchmarks.training.workload import group, smollm2
from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.losses import build_streams
from training.types import ObjectiveSpec, Row

ECHO = ObjectiveSpec(lambda_env=0.05)
GRPO = ObjectiveSpec(lambda_env=0.0)
REPEATS = 2


def main() -> None:
    """Both figures."""
    begin()
    session = LocalSession(ModelSpec(smollm2(), None, budget_tokens=4096, measures_entropy=False))
    vocabulary = session.model.config.vocab_size

    def step(rows: list[Row], spec: ObjectiveSpec) -> None:
        session.forward_backward(rows, build_streams(rows, spec), spec).result()
        session.optim_step(AdamSpec(learning_rate=0.0)).result()

    def one_pass(rows: list[Row], spec: ObjectiveSpec) -> int:
        stats = session.forward_backward(rows, build_streams(rows, spec), spec).result()
        session.optim_step(AdamSpec(learning_rate=0.0)).result()
        return stats.packed_tokens

    roles = "C" * 64 + ("A" * 24 + "E" * 24) * 4
    alone = group(vocabulary, roles, rows=2, shared=0)
    grpo, echo = in_turns([lambda: step(alone, GRPO), lambda: step(alone, ECHO)], REPEATS)
    report("echo_over_grpo", echo / grpo, 1.13)

    shared = group(vocabulary, "C" * 128 + "A" * 32, rows=8, shared=128)
    apart = [replace(row, ids=(3 + i, *row.ids[1:])) for i, row in enumerate(shared)]
    tokens = [one_pass(rows, GRPO) for rows in (shared, apart)]
    tree, rows = in_turns([lambda: one_pass(shared, GRPO), lambda: one_pass(apart, GRPO)], 2)
    ratio = tokens[1] / tokens[0]
    report("tree.token_ratio", ratio)
    report("tree.speed_up", rows / tree)
    report("tree.share_of_token_ratio", rows / tree / ratio, 0.75, is_floor=True)


if __name__ == "__main__":
    main()
