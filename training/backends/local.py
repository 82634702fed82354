"""The local backend: one process, one device; LoRA on a frozen Llama, or every weight of it.

The passes are those of `training.passes`; what is here is where the model lives, its optimiser and
its files. Under LoRA the frozen weights get no gradient, so a backward pass costs about as much as
a forward pass.

Calls compute before they return; their futures are done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as to_bytes
from torch import nn

from training import passes
from training.backends.base import AdamSpec, OptimStats, PassStats, WeightVersion
from training.checkpoint import write_folder
from training.errors import CheckpointError, NumericalError
from training.head import DEFAULT_CHUNK
from training.llama import Llama, load_llama
from training.lora import (
    WEIGHTS_FILE,
    LoraSpec,
    adapter_files,
    load_adapter,
)
from training.losses import Streams
from training.optimiser import Optimiser
from training.packing import DEFAULT_BUDGET_TOKENS
from training.reference import with_needed_scores
from training.trainable import MODEL_FILE, load_weights, make_trainable, model_files, trained
from training.types import ObjectiveSpec, Row

T = TypeVar("T")

ADAPTER_FOLDER = "adapter"
MODEL_FOLDER = "model"
OPTIM_FILE = "optim.safetensors"
MAX_SKIPPED_STEPS = 3
MIN_BUDGET_TOKENS = 32
"""Of a pack that was halved for want of memory; below it the job fails and says so."""
MIN_HEAD_CHUNK = 16


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What to train."""

    folder: Path
    lora: LoraSpec | None
    """None trains every weight; such a model is published as a whole folder."""
    initial_adapter: Path | None = None
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    budget_tokens: int = DEFAULT_BUDGET_TOKENS
    head_chunk: int = DEFAULT_CHUNK
    is_checkpointed: bool = False
    """Recompute each block in the backward pass: less memory, about a third more time."""
    measures_entropy: bool = True


class LocalSession:
    """A model with adapters and its optimiser; see `backends.base.Session`."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.model: Llama = load_llama(spec.folder, dtype=spec.dtype).to(spec.device)
        make_trainable(self.model, spec.lora)
        if spec.initial_adapter is not None:
            load_adapter(self.model, spec.initial_adapter)
        self._spread()
        self._named = trained(self.model, spec.lora)
        self.parameters = list(self._named.values())
        self._optimiser = Optimiser(self._named)
        self._skipped = 0
        self._budget_tokens = spec.budget_tokens
        self._head_chunk = spec.head_chunk

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return torch.device(self.spec.device)

    def forward(self, rows: Sequence[Row], *, temperature: float) -> Future[list[list[float]]]:
        """Log-probs of every target of each row, without gradient."""
        return done(self._logprobs(rows, temperature))

    def scored(self, rows: Sequence[Row], spec: ObjectiveSpec) -> Future[list[Row]]:
        """Rows with the log-probs that `spec` asks for beside the sampler's (`needs_scores`)."""

        def score(of: Sequence[Row]) -> list[list[float]]:
            return self._logprobs(of, spec.policy_temperature)

        return done(with_needed_scores(self.model, rows, spec, score))

    def forward_backward(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        *,
        on_pack: Callable[[], None] = lambda: None,
    ) -> Future[PassStats]:
        """Add the gradient of these rows, pack by pack; `on_pack` is called after each.

        Where memory runs out the pass begins again with half the tokens per pack, and keeps to that
        from then on. What it had added by then is taken back, so the gradient is the same.
        """
        before = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        halvings = 0
        while True:
            try:
                stats = self._pass(rows, streams, spec, on_pack)
                return done(replace(stats, halvings=halvings))
            except (RuntimeError, MemoryError) as error:
                is_smallest = self._budget_tokens <= MIN_BUDGET_TOKENS
                if not self._may_halve or is_smallest or not _is_out_of_memory(error):
                    raise
            # Outside the handler: the traceback holds the tensors of the failed pass.
            halvings += 1
            self._budget_tokens //= 2
            self._head_chunk = max(MIN_HEAD_CHUNK, self._head_chunk // 2)
            for parameter, grad in zip(self.parameters, before, strict=True):
                parameter.grad = None if grad is None else grad.clone()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _spread(self) -> None:
        """Where the weights lie, once they are loaded: here, all of them."""

    @property
    def _may_halve(self) -> bool:
        """Whether a pass may begin again by itself."""
        return True

    def _logprobs(self, rows: Sequence[Row], temperature: float) -> list[list[float]]:
        return passes.logprobs(self.model, rows, temperature=temperature, options=self._options())

    def _grad_norm(self) -> float:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return float(nn.utils.get_total_norm(grads)) if grads else 0.0

    def _pass(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        on_pack: Callable[[], None],
    ) -> PassStats:
        return passes.forward_backward(
            self.model, rows, streams, spec, self._options(), on_pack=on_pack
        )

    def _options(self) -> passes.PassOptions:
        return passes.PassOptions(
            budget_tokens=self._budget_tokens,
            head_chunk=self._head_chunk,
            is_checkpointed=self.spec.is_checkpointed,
            measures_entropy=self.spec.measures_entropy,
        )

    def optim_step(self, adam: AdamSpec) -> Future[OptimStats]:
        """Clip and step; a gradient that is not finite skips the step and keeps the moments.

        Raises NumericalError at the third skipped step in a row.
        """
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = self._grad_norm()
        is_finite = norm == norm and norm not in (float("inf"), float("-inf"))
        if is_finite and grads:
            if adam.clip_norm > 0.0 and norm > adam.clip_norm:
                for grad in grads:
                    grad.mul_(adam.clip_norm / (norm + 1e-6))
            self._optimiser.step(
                learning_rate=adam.learning_rate,
                beta1=adam.beta1,
                beta2=adam.beta2,
                eps=adam.eps,
                weight_decay=adam.weight_decay,
            )
        self._optimiser.zero_grad()
        self._skipped = 0 if is_finite else self._skipped + 1
        if self._skipped >= MAX_SKIPPED_STEPS:
            raise NumericalError(f"the gradient was not finite in {self._skipped} steps in a row")
        return done(
            OptimStats(grad_norm=norm, is_skipped=not is_finite, skipped_in_a_row=self._skipped)
        )

    def state_files(self) -> dict[str, bytes]:
        """Weights and optimiser state as the files of a checkpoint."""
        tensors = self._optimiser.tensors()
        tensors["skipped_in_a_row"] = torch.tensor(self._skipped)
        return {
            **{f"{self._folder}/{name}": content for name, content in self._weights().items()},
            OPTIM_FILE: to_bytes(tensors),
        }

    @property
    def _folder(self) -> str:
        return MODEL_FOLDER if self.spec.lora is None else ADAPTER_FOLDER

    def _weights(self) -> dict[str, bytes]:
        if self.spec.lora is None:
            return model_files(self.model)
        return adapter_files(self.model, self.spec.lora, base_model=str(self.spec.folder.name))

    def save_state(self, folder: Path) -> Future[None]:
        """Write `state_files` to a folder, atomically."""
        write_folder(folder, self.state_files())
        return done(None)

    def load_state(self, folder: Path) -> Future[None]:
        """Continue from a checkpoint: weights, moments and the count of skipped steps."""
        if self.spec.lora is None:
            load_weights(self.model, folder / MODEL_FOLDER)
        else:
            load_adapter(self.model, folder / ADAPTER_FOLDER)
        try:
            tensors = load_bytes((folder / OPTIM_FILE).read_bytes())
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{folder / OPTIM_FILE}: {error}") from error
        self._optimiser.load(tensors)
        self._skipped = int(tensors["skipped_in_a_row"])
        self._optimiser.zero_grad()
        return done(None)

    def close(self) -> None:
        """Nothing is held beside memory."""

    def publish(self, root: Path, number: int) -> Future[WeightVersion]:
        """Export the weights as `root/v0001`; publishing the same number again gives the same.

        An adapter in PEFT's format, or a model folder where every weight is trained.
        """
        name = f"v{number:04d}"
        files = self._weights()
        digest = hashlib.sha256(files[MODEL_FILE if self.spec.lora is None else WEIGHTS_FILE])
        if self.spec.lora is None:
            files |= {
                path.name: path.read_bytes()
                for path in self.spec.folder.iterdir()
                if path.is_file() and path.name not in files
            }
        write_folder(root / name, files)
        version = WeightVersion(
            number=number, name=name, adapter=root / name, sha256=digest.hexdigest()
        )
        return done(version)


def _is_out_of_memory(error: BaseException) -> bool:
    """CUDA has a class of its own; torch's CPU allocator raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return "DefaultCPUAllocator: can't allocate memory" in str(error)


def done(value: T) -> Future[T]:
    """A future of what is computed already."""
    future: Future[T] = Future()
    future.set_result(value)
    return future
