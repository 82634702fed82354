"""Our step with ECHO beside TRL's GRPO step without it, and that both compute the same.

Both get the same tokens, rewards, sampler's log-probs, weights, AdamW and clip; every weight is
trained. TRL's own training loop runs, and only its generation is replaced, by the fixed rollouts;
what is timed is one optimiser step, from its beginning to its end. After each of TRL's steps ours
takes the same step without ECHO, whose loss and gradient norm must equal TRL's, and a third copy
takes a step with ECHO, whose time is the figure.

Where both differ is how, not what: our rows share their prompt and the head meets only positions
that carry a weight. TRL without Triton evaluates it everywhere and keeps all logits.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.training.part import begin, report
from benchmarks.training.workload import group, smollm2, toy
from training.backends.base import AdamSpec
from training.backends.local import LocalSession, ModelSpec
from training.losses import build_streams
from training.types import AdvantageMode, AdvantageSpec, ObjectiveSpec, Row

STEPS = 5
EQUAL = 1e-5
TIMED_STEPS = 3
"""Of the copy with ECHO, which is there for its time alone."""
ROLES = "C" * 32 + ("A" * 7 + "E" * 9) * 4
"""96 tokens: a prompt, then four turns; three eighths are observations."""
ATTEMPTS = 8
GRPO = ObjectiveSpec(lambda_env=0.0, advantage=AdvantageSpec(mode=AdvantageMode.STD))
ECHO = replace(GRPO, lambda_env=0.05)
ADAM = AdamSpec(learning_rate=1e-6, clip_norm=1.0)


class FixedRollouts(GRPOTrainer):  # type: ignore[misc] # TRL has no types
    """TRL's trainer on rollouts that are there already; keeps the losses and norms of its steps."""

    def __init__(self, fixed: dict[str, Tensor], **options: Any) -> None:
        super().__init__(**options)
        self.fixed = fixed
        self.losses: list[float] = []
        self.norms: list[float] = []

    def _prepare_inputs(self, _: Any) -> dict[str, Tensor]:
        return self.fixed

    def training_step(self, *arguments: Any, **options: Any) -> Tensor:
        loss: Tensor = super().training_step(*arguments, **options)
        self.losses.append(float(loss))
        return loss

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        if "grad_norm" in logs:
            self.norms.append(float(logs["grad_norm"]))


class Turns(TrainerCallback):
    """Times TRL's steps and lets ours follow each of them."""

    def __init__(self, ours: Sequence[Ours]) -> None:
        self.ours = ours
        self.seconds: list[float] = []
        self._started = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """TRL begins."""
        self._started = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """TRL is done; ours take their steps."""
        self.seconds.append(time.process_time() - self._started)
        for one in self.ours:
            if one.spec.lambda_env == 0.0 or len(one.seconds) < TIMED_STEPS:
                one.step()


class Ours:
    """Our trainer on the same rollouts, with or without ECHO."""

    def __init__(self, folder: Path, rows: Sequence[Row], spec: ObjectiveSpec) -> None:
        self.session = LocalSession(ModelSpec(folder, None, budget_tokens=4096))
        self.rows, self.spec = rows, spec
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.seconds: list[float] = []

    def step(self) -> None:
        """One optimiser step."""
        started = time.process_time()
        streams = build_streams(self.rows, self.spec)
        stats = self.session.forward_backward(self.rows, streams, self.spec).result()
        done = self.session.optim_step(ADAM).result()
        self.seconds.append(time.process_time() - started)
        self.losses.append(stats.loss)
        self.norms.append(done.grad_norm)


def main() -> None:
    """The toy, then SmolLM2."""
    begin()
    with tempfile.TemporaryDirectory() as folder:
        compare("toy", toy(Path(folder)), 0.30)
    gc.collect()
    compare("smollm2", smollm2(), 0.80)


def compare(name: str, folder: Path, bar: float) -> None:
    """Figures of one model."""
    rows = _rollouts(folder)
    ours = [Ours(folder, rows, GRPO), Ours(folder, rows, ECHO)]
    turns = Turns(ours)
    with tempfile.TemporaryDirectory() as output:
        trl = FixedRollouts(
            _as_trl(rows),
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=[_no_reward],
            args=_settings(Path(output)),
            train_dataset=Dataset.from_list([{"prompt": "x"}] * ATTEMPTS),
            processing_class=PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # transformers leaves it
                tokenizer_file=str(folder / "tokenizer.json"),
                eos_token="<|im_end|>",
                pad_token="<|im_end|>",
            ),
            callbacks=[turns],
        )
        trl.train()
    plain, echo = ours
    trl_s, plain_s, echo_s = map(min, (turns.seconds, plain.seconds, echo.seconds))
    report(f"{name}.trl_step_cpu_s", trl_s)
    report(f"{name}.echo_step_cpu_s", echo_s)
    report(f"{name}.echo_over_trl_grpo", echo_s / trl_s, bar)
    report(f"{name}.grpo_over_trl_grpo", plain_s / trl_s)
    report(f"{name}.loss_difference", _largest_gap(plain.losses, trl.losses), EQUAL)
    report(f"{name}.grad_norm_difference", _largest_gap(plain.norms, trl.norms), EQUAL)


def _largest_gap(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of `STEPS` values, relative to the size of theirs where that is above 1."""
    if len(ours) != STEPS or len(theirs) != STEPS:
        return float("nan")
    pairs = zip(ours, theirs, strict=True)
    return max(abs(one - other) / max(1.0, abs(other)) for one, other in pairs)


def _rollouts(folder: Path) -> list[Row]:
    """Rollouts of a sampler whose log-probs differ from the trainer's, so that ratios count."""
    session = LocalSession(ModelSpec(folder, None, budget_tokens=4096))
    vocabulary = session.model.config.vocab_size
    rows = group(vocabulary, ROLES, rows=ATTEMPTS, shared=ROLES.index("A"))
    scored = session.forward(rows, temperature=1.0).result()
    random = Random(0)
    return [
        replace(row, logprobs=(0.0, *(min(lp + random.gauss(0.0, 0.2), 0.0) for lp in values)))
        for row, values in zip(rows, scored, strict=True)
    ]


def _as_trl(rows: Sequence[Row]) -> dict[str, Tensor]:
    """The same as TRL's generation would hand over."""
    prompt = ROLES.index("A")
    streams = build_streams(rows, GRPO)
    ids = torch.tensor([row.ids for row in rows])
    old = torch.tensor([row.logprobs for row in rows])
    is_action = torch.tensor([[kind == "action" for kind in row.kinds] for row in rows]).int()
    return {
        "prompt_ids": ids[:, :prompt],
        "prompt_mask": torch.ones_like(ids[:, :prompt]),
        "completion_ids": ids[:, prompt:],
        "completion_mask": torch.ones_like(ids[:, prompt:]),
        "tool_mask": is_action[:, prompt:],
        "old_per_token_logps": old[:, prompt:],
        "advantages": torch.tensor([stream.advantage for stream in streams.rows]),
        "num_items_in_batch": is_action.sum(),
    }


def _settings(output: Path) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(output),
        max_steps=STEPS,
        per_device_train_batch_size=ATTEMPTS,
        num_generations=ATTEMPTS,
        loss_type="grpo",
        epsilon=GRPO.clip_low,
        epsilon_high=GRPO.clip_high,
        beta=0.0,
        learning_rate=ADAM.learning_rate,
        lr_scheduler_type="constant",
        warmup_steps=0,
        adam_beta1=ADAM.beta1,
        adam_beta2=ADAM.beta2,
        adam_epsilon=ADAM.eps,
        weight_decay=ADAM.weight_decay,
        max_grad_norm=ADAM.clip_norm,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def _no_reward(completions: Sequence[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


if __name__ == "__main__":
    main()
