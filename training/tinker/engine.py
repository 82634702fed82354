"""Models in training behind the Tinker verbs.

Every loss is a plain sum; normalising is the client's duty. With lp the current and q the given
log-probability, r = exp(lp - q), A the advantage and w the weight: cross_entropy is -sum w lp,
importance_sampling -sum r A, ppo -sum min(r A, clip(r) A), cispo -sum clip(r) lp A with the clipped
ratio held fixed, dro -sum (lp A - beta/2 (lp - q)^2). Clip thresholds bound the ratio itself.

`custom` is a client's own, by its id (`graph`).

Gradients add up until `optim_step`. A model that failed once refuses everything afterwards, as the
SDK's client does: the way on is a new one from a saved state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from training.errors import ConfigurationError
from training.head import token_logprobs
from training.llama import Llama, forward_packed, load_llama
from training.lora import LoraSpec, adapter_files, add_lora, lora_parameters
from training.manifest import ALL_LINEAR
from training.tinker.graph import TracedLoss

LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "custom")
LORA_ALPHA = 32.0
Config = Mapping[str, float | str]
"""Settings of a loss; text for the id of a client's own."""


@dataclass(frozen=True, slots=True)
class Datum:
    """One sequence: what the model reads, and per position what a loss needs."""

    tokens: tuple[int, ...]
    inputs: Mapping[str, tuple[float, ...]]
    """`target_tokens`, `weights`, `logprobs`, `advantages`, … of equal length."""


@dataclass(frozen=True, slots=True)
class AdamParams:
    """All of them are always given: defaults of engines differ."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0
    """0 switches clipping off."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What a forward or forward_backward says."""

    logprobs: tuple[tuple[float, ...], ...]
    """Of the targets, per datum."""
    loss: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    is_stopped: bool


@dataclass
class Training:
    """One model with adapters, its gradient and its optimiser."""

    model: Llama
    rank: int
    optimizer: torch.optim.AdamW
    parameters: list[nn.Parameter]
    error: str = ""
    """Not empty: it failed, and refuses everything."""


class Engine:
    """All models of one server over one base model. Not thread-safe: one call at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trainings: dict[str, Training] = {}
        self.states: dict[str, tuple[int, list[Tensor], dict[str, object]]] = {}
        """Path to rank, adapter and optimiser state."""
        self.losses: dict[str, TracedLoss] = {}
        """By id, those of clients."""
        self._made = 0

    def create(self, *, rank: int, seed: int | None, name: str = "") -> str:
        """The name of a fresh adapter on the base; the same seed gives the same values."""
        model = load_llama(self.folder, dtype=torch.float32)
        spec = LoraSpec(rank=rank, alpha=LORA_ALPHA, seed=seed or 0, targets=ALL_LINEAR)
        add_lora(model, spec)
        parameters = [parameter for _, parameter in lora_parameters(model)]
        optimizer = torch.optim.AdamW(parameters, lr=0.0, foreach=False)
        self._made += 1
        name = name or f"model-{self._made}"
        self.trainings[name] = Training(model, rank, optimizer, parameters)
        return name

    def forward_backward(
        self,
        training: Training,
        data: Sequence[Datum],
        loss_fn: str,
        config: Config,
        *,
        is_forward_only: bool,
    ) -> Passed:
        """Adds the gradient of the sum of the losses. Raises ConfigurationError."""
        if loss_fn not in LOSSES:
            raise ConfigurationError(f"loss_fn: {loss_fn!r} is not one of {', '.join(LOSSES)}")
        logprobs: list[tuple[float, ...]] = []
        total = 0.0
        with torch.set_grad_enabled(not is_forward_only):
            for datum in data:
                lp_T = self._logprobs(training.model, datum)
                loss = self.loss(lp_T, datum, loss_fn, config)
                if not is_forward_only:
                    loss.backward()  # type: ignore[no-untyped-call] # torch: untyped
                logprobs.append(tuple(lp_T.detach().tolist()))
                total += float(loss.detach())
        return Passed(tuple(logprobs), total)

    def loss(self, lp_T: Tensor, datum: Datum, loss_fn: str, config: Config) -> Tensor:
        """A sum over the datum's positions."""
        if loss_fn == "custom":
            return self._custom(str(config.get("loss_id", "")))(
                lp_T, {name: torch.tensor(values) for name, values in datum.inputs.items()}
            )
        if loss_fn == "cross_entropy":
            weights = datum.inputs.get("weights", (1.0,) * len(datum.tokens))
            return -(torch.tensor(weights) * lp_T).sum()
        q_T = torch.tensor(datum.inputs["logprobs"])
        advantages_T = torch.tensor(datum.inputs["advantages"])
        if loss_fn == "dro":
            distance_T = (lp_T - q_T) ** 2
            return -(lp_T * advantages_T - 0.5 * float(config.get("beta", 0.05)) * distance_T).sum()
        ratio_T = torch.exp(lp_T - q_T)
        if loss_fn == "importance_sampling":
            return -(ratio_T * advantages_T).sum()
        low = float(config.get("clip_low_threshold", 0.8))
        high = float(config.get("clip_high_threshold", 1.2))
        clipped_T = ratio_T.clamp(low, high)
        if loss_fn == "ppo":
            return -torch.minimum(ratio_T * advantages_T, clipped_T * advantages_T).sum()
        return -(clipped_T.detach() * lp_T * advantages_T).sum()

    def _custom(self, name: str) -> TracedLoss:
        if name not in self.losses:
            raise ConfigurationError(f"loss_id: no loss {name!r} was created here")
        return self.losses[name]

    def optim_step(self, training: Training, adam: AdamParams) -> dict[str, float]:
        """Clips, steps, and forgets the gradient."""
        for parameter in training.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        grads = [p.grad for p in training.parameters if p.grad is not None]
        norm = float(nn.utils.get_total_norm(grads))
        if adam.grad_clip_norm > 0 and norm > adam.grad_clip_norm:
            for grad in grads:
                grad.mul_(adam.grad_clip_norm / norm)
        for group in training.optimizer.param_groups:
            group["lr"] = adam.learning_rate
            group["betas"] = (adam.beta1, adam.beta2)
            group["eps"] = adam.eps
            group["weight_decay"] = adam.weight_decay
        if math.isfinite(norm):
            training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
        return {"unclipped_grad_l2:mean": norm}

    def save(self, training: Training, path: str) -> None:
        """Keeps adapter and optimiser state under a path, until the server ends."""
        values = [parameter.detach().clone() for parameter in training.parameters]
        self.states[path] = (training.rank, values, copy.deepcopy(training.optimizer.state_dict()))

    def load(self, path: str, *, has_optimizer: bool, name: str = "") -> str:
        """A new model from a saved state. Raises ConfigurationError for an unknown path."""
        if path not in self.states:
            raise ConfigurationError(f"no state is saved under {path!r}")
        rank, values, optimizer = self.states[path]
        name = self.create(rank=rank, seed=0, name=name)
        training = self.trainings[name]
        with torch.no_grad():
            for parameter, value in zip(training.parameters, values, strict=True):
                parameter.copy_(value)
        if has_optimizer:
            training.optimizer.load_state_dict(copy.deepcopy(optimizer))
        return name

    def adapter_files(self, training: Training) -> dict[str, bytes]:
        """Its adapter in PEFT's format."""
        spec = LoraSpec(rank=training.rank, alpha=LORA_ALPHA, seed=0, targets=ALL_LINEAR)
        return adapter_files(training.model, spec, base_model=self.folder.name)

    def score(self, model: Llama, prompt: Sequence[int]) -> list[float]:
        """Log-probability of each token but the first, which is NaN."""
        datum = Datum(tuple(prompt[:-1]), {"target_tokens": tuple(map(float, prompt[1:]))})
        with torch.no_grad():
            return [math.nan, *self._logprobs(model, datum).tolist()]

    def _logprobs(self, model: Llama, datum: Datum) -> Tensor:
        targets = torch.tensor([int(token) for token in datum.inputs["target_tokens"]])
        hidden = forward_packed(model, torch.tensor(datum.tokens), [])
        table: Tensor = model.lm_head(hidden)
        return token_logprobs(table, targets, 1.0)
