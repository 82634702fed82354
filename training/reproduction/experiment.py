"""One training in the world of four files, as a process: JSON lines on standard output.

`python -m training.reproduction.experiment --value 0.05 --seed 0`. Each step samples a few commands
for a few exercises by the policy itself, rewards the right one, and takes one step of GRPO plus
lambda times the environment's cross-entropy: rows, loss, passes and optimiser are the trainer's
own. Which commands may be said is restricted to a few, as the loss over all characters is not, so
that a network that knows no word yet finds rewards at all.

Every few steps the surprise at the environment is measured, on scripted solutions of each part.
Two processes with the same seed and another lambda begin with the same weights and the same luck.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.llama import Llama, LlamaConfig
from training.losses import build_streams
from training.reproduction.files import Exercise, Parts, choices, parts
from training.reproduction.rollouts import VOCABULARY, beginning, oracle, rollout
from training.types import AdvantageMode, AdvantageSpec, EnvNorm, ObjectiveSpec, Row, TokenKind

LAYERS, HIDDEN, HEADS = 3, 128, 4
SHARPNESS = 8.0
"""Characters that a command counts as when it is drawn, whatever its length: by its whole
log-probability a network that knows nothing would always say the shortest."""


@dataclass(frozen=True)
class Plan:
    """Sizes of the training; together with seed and lambda they decide every figure."""

    steps: int = 260
    groups: int = 6
    samples: int = 8
    choices: int = 5
    every: int = 10
    learning_rate: float = 2e-3


class Training:
    """A policy, its optimiser, and the exercises."""

    def __init__(self, folder: Path, plan: Plan, *, seed: int, value: float) -> None:
        self.plan = plan
        self.seed = seed
        self.parts: Parts = parts(seed)
        self.spec = ObjectiveSpec(
            lambda_env=value,
            env_norm=EnvNorm.FULL_OBSERVATION_TOKENS,
            advantage=AdvantageSpec(mode=AdvantageMode.STD),
        )
        make_model(folder, seed)
        self.session = LocalSession(
            ModelSpec(folder, None, budget_tokens=4096, head_chunk=4096, measures_entropy=False)
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """One per step, and one per evaluation; step 0 is the untrained network."""
        yield self.evaluation(0)
        for step in range(1, self.plan.steps + 1):
            yield self.step(step)
            if step % self.plan.every == 0 or step == self.plan.steps:
                yield self.evaluation(step)

    def step(self, step: int) -> dict[str, Any]:
        chance = random.Random(f"step/{self.seed}/{step}")
        rows = self._sampled(chance.sample(self.parts.train, self.plan.groups), step, chance)
        streams = build_streams(rows, self.spec)
        stats = self.session.forward_backward(rows, streams, self.spec).result()
        optim = self.session.optim_step(AdamSpec(learning_rate=self.plan.learning_rate)).result()
        return {
            "kind": "step",
            "step": step,
            "reward": math.fsum(row.reward or 0.0 for row in rows) / len(rows),
            "policy_loss": stats.policy_loss,
            "env_loss": stats.env_loss,
            "grad_norm": optim.grad_norm,
            "zero_advantage_share": streams.groups_without_spread / streams.groups,
            "n_action": sum(row.kinds.count(TokenKind.ACTION) for row in rows),
            "n_env": sum(row.kinds.count(TokenKind.ENV_OUTPUT) for row in rows),
        }

    def _sampled(
        self, exercises: Sequence[Exercise], step: int, chance: random.Random
    ) -> list[Row]:
        open_choices = [
            (each, command)
            for each in exercises
            for command in choices(each, self.parts.train, self.plan.choices, self.seed)
        ]
        heads = [beginning(each, command) for each, command in open_choices]
        scored = self.session.forward(heads, temperature=1.0).result()
        rows = []
        for number, exercise in enumerate(exercises):
            first = number * self.plan.choices
            of_task = range(first, first + self.plan.choices)
            said = [_of_kind(heads[i], scored[i], TokenKind.ACTION) for i in of_task]
            weights = softmax([SHARPNESS * math.fsum(each) / len(each) for each in said])
            for replicate in range(self.plan.samples):
                drawn = chance.choices(range(self.plan.choices), weights)[0]
                command = open_choices[first + drawn][1]
                rows.append(
                    rollout(
                        exercise,
                        command,
                        name=f"{step}-{number}-{replicate}",
                        reward=float(command == exercise.command),
                        logprobs=said[drawn],
                        version=f"v{step - 1}",
                    )
                )
        return rows

    def evaluation(self, step: int) -> dict[str, Any]:
        """Nats per character of what the environment says in scripted solutions, by part."""
        named = {
            "train": self.parts.train,
            "validation": self.parts.validation,
            "final": self.parts.final,
        }
        line: dict[str, Any] = {"kind": "evaluation", "step": step}
        for name, exercises in named.items():
            line[name] = self._surprise(oracle(exercises))
        return line

    def _surprise(self, rows: Sequence[Row]) -> float:
        logprobs = self.session.forward(rows, temperature=1.0).result()
        of_world = [
            value
            for row, values in zip(rows, logprobs, strict=True)
            for value in _of_kind(row, values, TokenKind.ENV_OUTPUT)
        ]
        return -math.fsum(of_world) / len(of_world)


def _of_kind(row: Row, values: Sequence[float], wanted: TokenKind) -> list[float]:
    """Those of one value per target that belong to a token of this kind."""
    return [v for v, kind in zip(values, row.kinds[1:], strict=True) if kind is wanted]


def softmax(values: Sequence[float]) -> list[float]:
    """Probabilities of log-weights."""
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def make_model(folder: Path, seed: int) -> None:
    """A random network over characters; surprised by every one alike at the start."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HIDDEN // HEADS,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=0,
    )
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.ones(parameter.shape)
        if name.endswith("norm.weight")
        else 0.02 * torch.randn(parameter.shape, generator=generator)
        for name, parameter in Llama(config).named_parameters()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_hf()), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training.reproduction.experiment", description=__doc__
    )
    parser.add_argument("--value", type=float, required=True, help="lambda; 0 is GRPO")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parent", type=int, help="process id without which it ends")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="switchback-echo-") as folder:
        plan = Plan(steps=options.steps)
        training = Training(Path(folder), plan, seed=options.seed, value=options.value)
        for line in training.lines():
            if options.parent not in (None, os.getppid()):
                return 1  # nobody reads on
            print(json.dumps({"lambda": options.value, "seed": options.seed, **line}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
