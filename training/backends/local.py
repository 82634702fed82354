"""The local backend: one process, one device, LoRA on a frozen Llama.

A step's rows become a root and packs below it; each pack is one forward pass for both losses.
The head runs chunk by chunk with loss and gradient at once: all losses are sums over tokens, so the
gradient on the hidden states is known before the next chunk and no logits are kept or recomputed.
The frozen weights get no gradient, so a backward pass costs about as much as a forward pass.

Calls compute before they return; their futures are done.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from training import objective
from training.backends.base import AdamSpec, OptimStats, PassStats, WeightVersion
from training.checkpoint import write_folder
from training.errors import CheckpointError, NumericalError
from training.head import (
    DEFAULT_CHUNK,
    chunked_logprobs,
    entropy,
    logits,
    pieces,
    token_logprobs,
)
from training.llama import Llama, load_llama
from training.lora import (
    WEIGHTS_FILE,
    LoraSpec,
    adapter_files,
    add_lora,
    load_adapter,
    lora_parameters,
)
from training.losses import Streams
from training.packing import (
    DEFAULT_BUDGET_TOKENS,
    Pack,
    first_input,
    needed_inputs,
    pack_rows,
    shared_root,
)
from training.tree import KeyValues, Root, TreeLayout, forward_tree
from training.types import ObjectiveSpec, Row

T = TypeVar("T")

ADAPTER_FOLDER = "adapter"
OPTIM_FILE = "optim.safetensors"
MAX_SKIPPED_STEPS = 3
MIN_ROOT_TOKENS = 32
"""A shorter common beginning is not worth a pass of its own."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What to train."""

    folder: Path
    lora: LoraSpec
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
        self.parameters = add_lora(self.model, spec.lora)
        if spec.initial_adapter is not None:
            load_adapter(self.model, spec.initial_adapter)
        self._optimizer = torch.optim.AdamW(self.parameters, lr=0.0, foreach=False)
        self._skipped = 0

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return torch.device(self.spec.device)

    def forward(self, rows: Sequence[Row], *, temperature: float) -> Future[list[list[float]]]:
        """Log-probs of every target of each row, without gradient."""
        packs = pack_rows(
            [row.ids for row in rows],
            [len(row.ids) - 1 for row in rows],
            budget_tokens=self.spec.budget_tokens,
        )
        result: list[list[float]] = [[] for _ in rows]
        with torch.no_grad():
            for pack in packs:
                hidden_NH = self._hidden(pack)
                for member, index in enumerate(pack.rows):
                    targets = range(len(rows[index].ids) - 1)
                    flat = self._indices(pack.flat_positions(member, targets))
                    wanted = self._indices(rows[index].ids[1:])
                    logprobs_T = chunked_logprobs(
                        hidden_NH[flat],
                        self.model.lm_head.weight,
                        wanted,
                        temperature=temperature,
                        chunk=self.spec.head_chunk,
                    )
                    result[index] = logprobs_T.tolist()
        return _done(result)

    def forward_backward(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        *,
        on_pack: Callable[[], None] = lambda: None,
    ) -> Future[PassStats]:
        """Add the gradient of these rows, pack by pack; `on_pack` is called after each."""
        started = time.perf_counter()
        needed = [needed_inputs(stream) for stream in streams.rows]
        length, packs = self._plan(rows, streams, needed)
        root = self._root(rows, streams, length) if length else None
        sums = _Sums()
        for pack in packs:
            self._pack_backward(pack, rows, streams, spec, length, root, sums)
            on_pack()
        if root is not None:
            root.backward()
            on_pack()
        env_loss = sums.env / spec.lambda_env if streams.has_env else None
        return _done(
            PassStats(
                loss=sums.policy + sums.env,
                policy_loss=sums.policy,
                env_loss=env_loss,
                log_ratios=tuple(sums.log_ratios),
                entropies=tuple(sums.entropies),
                env_nll_sum=sums.env_nll,
                n_env_tokens=sums.n_env,
                row_tokens=sum(needed),
                packed_tokens=length + sum(pack.n_tokens for pack in packs),
                packs=len(packs),
                seconds=time.perf_counter() - started,
            )
        )

    def optim_step(self, adam: AdamSpec) -> Future[OptimStats]:
        """Clip and step; a gradient that is not finite skips the step and keeps the moments.

        Raises NumericalError at the third skipped step in a row.
        """
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = float(nn.utils.get_total_norm(grads)) if grads else 0.0
        is_finite = norm == norm and norm not in (float("inf"), float("-inf"))
        if is_finite and grads:
            if adam.clip_norm > 0.0 and norm > adam.clip_norm:
                for grad in grads:
                    grad.mul_(adam.clip_norm / (norm + 1e-6))
            for group in self._optimizer.param_groups:
                group["lr"] = adam.learning_rate
                group["betas"] = (adam.beta1, adam.beta2)
                group["eps"] = adam.eps
                group["weight_decay"] = adam.weight_decay
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._skipped = 0 if is_finite else self._skipped + 1
        if self._skipped >= MAX_SKIPPED_STEPS:
            raise NumericalError(f"the gradient was not finite in {self._skipped} steps in a row")
        return _done(
            OptimStats(grad_norm=norm, is_skipped=not is_finite, skipped_in_a_row=self._skipped)
        )

    def state_files(self) -> dict[str, bytes]:
        """Weights and optimiser state as the files of a checkpoint."""
        adapter = adapter_files(self.model, self.spec.lora, base_model=str(self.spec.folder.name))
        tensors: dict[str, Tensor] = {}
        for name, parameter in lora_parameters(self.model):
            state = self._optimizer.state.get(parameter)
            for key, value in (state or {}).items():
                tensors[f"{name}/{key}"] = value.detach().cpu().contiguous()
        tensors["skipped_in_a_row"] = torch.tensor(self._skipped)
        return {
            **{f"{ADAPTER_FOLDER}/{name}": content for name, content in adapter.items()},
            OPTIM_FILE: to_bytes(tensors),
        }

    def save_state(self, folder: Path) -> Future[None]:
        """Write `state_files` to a folder, atomically."""
        write_folder(folder, self.state_files())
        return _done(None)

    def load_state(self, folder: Path) -> Future[None]:
        """Continue from a checkpoint: weights, moments and the count of skipped steps."""
        load_adapter(self.model, folder / ADAPTER_FOLDER)
        try:
            tensors = load_bytes((folder / OPTIM_FILE).read_bytes())
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{folder / OPTIM_FILE}: {error}") from error
        self._optimizer.state.clear()
        for name, parameter in lora_parameters(self.model):
            found = {
                key: tensors[f"{name}/{key}"].to(parameter.device if key != "step" else "cpu")
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"{name}/{key}" in tensors
            }
            if found:
                self._optimizer.state[parameter] = found
        self._skipped = int(tensors["skipped_in_a_row"])
        self._optimizer.zero_grad(set_to_none=True)
        return _done(None)

    def publish(self, root: Path, number: int) -> Future[WeightVersion]:
        """Export the adapter as `root/v0001`; publishing the same number again gives the same."""
        name = f"v{number:04d}"
        files = adapter_files(self.model, self.spec.lora, base_model=str(self.spec.folder.name))
        write_folder(root / name, files)
        digest = hashlib.sha256(files[WEIGHTS_FILE]).hexdigest()
        return _done(WeightVersion(number=number, name=name, adapter=root / name, sha256=digest))

    def _plan(
        self, rows: Sequence[Row], streams: Streams, needed: Sequence[int]
    ) -> tuple[int, list[Pack]]:
        """Length of the root, and packs of what lies below it.

        A root pays when it would otherwise be computed in more than one pack.
        """
        ids = [row.ids for row in rows]
        firsts = [first_input(stream) for stream in streams.rows]
        budget = self.spec.budget_tokens
        root = shared_root(ids, needed, firsts)
        if root >= MIN_ROOT_TOKENS:
            below = pack_rows(
                [i[root:] for i in ids], [max(n - root, 0) for n in needed], budget_tokens=budget
            )
            if len(below) > 1:
                return root, below
        return 0, pack_rows(ids, needed, budget_tokens=budget)

    def _root(self, rows: Sequence[Row], streams: Streams, length: int) -> Root:
        index = next(i for i, stream in enumerate(streams.rows) if needed_inputs(stream) > 0)
        return Root(
            self.model,
            self._indices(rows[index].ids[:length]),
            most_tokens=self.spec.budget_tokens,
        )

    def _hidden(self, pack: Pack, past: KeyValues | None = None) -> Tensor:
        layout = TreeLayout.build(
            prefix=len(pack.prefix),
            suffixes=[len(suffix) for suffix in pack.suffixes],
            past=past,
            device=self.device,
        )
        ids = [*pack.prefix, *(token for suffix in pack.suffixes for token in suffix)]
        return forward_tree(
            self.model, self._indices(ids), layout, checkpoint=self.spec.is_checkpointed
        )

    def _indices(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)

    def _pack_backward(
        self,
        pack: Pack,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        length: int,
        root: Root | None,
        sums: _Sums,
    ) -> None:
        hidden_NH = self._hidden(pack, None if root is None else root.past)
        grad_NH = torch.zeros_like(hidden_NH)
        fixed_NH = hidden_NH.detach()
        members = [streams.rows[i] for i in pack.rows]

        flat, wanted = self._selection(pack, rows, length, [s.rl_targets for s in members])
        targets = objective.policy_targets(members, dtype=torch.float32, device=self.device)
        for piece in pieces(len(flat), self.spec.head_chunk):
            leaf = fixed_NH[flat[piece]].requires_grad_()
            table = logits(leaf, self.model.lm_head.weight)
            if self.spec.measures_entropy:
                sums.entropies += entropy(table.detach(), spec.policy_temperature).tolist()
            lp = token_logprobs(table, wanted[piece], spec.policy_temperature)
            part = targets.part(piece.start, piece.stop)
            loss = objective.policy_loss(lp, part, spec)
            grad_NH.index_add_(0, flat[piece], torch.autograd.grad(loss, leaf)[0])
            sums.policy += float(loss.detach())
            ratios = lp.detach() - part.old_logprobs_N
            sums.log_ratios += ratios[~torch.isnan(part.old_logprobs_N)].tolist()

        if streams.has_env:
            flat, wanted = self._selection(pack, rows, length, [s.env_targets for s in members])
            weights = objective.env_weights(members, dtype=torch.float32, device=self.device)
            for piece in pieces(len(flat), self.spec.head_chunk):
                leaf = fixed_NH[flat[piece]].requires_grad_()
                table = logits(leaf, self.model.lm_head.weight)
                lp = token_logprobs(table, wanted[piece], spec.env_temperature)
                loss = objective.env_loss(lp, weights[piece])
                grad_NH.index_add_(0, flat[piece], torch.autograd.grad(loss, leaf)[0])
                sums.env += float(loss.detach())
                sums.env_nll -= float(lp.detach().sum())
                sums.n_env += len(lp)

        hidden_NH.backward(grad_NH)  # type: ignore[no-untyped-call]

    def _selection(
        self, pack: Pack, rows: Sequence[Row], root: int, targets_M: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """Flat positions and wanted tokens of the pack's targets, in the order of its rows."""
        flat: list[int] = []
        wanted: list[int] = []
        for member, (index, targets) in enumerate(zip(pack.rows, targets_M, strict=True)):
            flat += pack.flat_positions(member, [t - root for t in targets])
            wanted += [rows[index].ids[t + 1] for t in targets]
        return self._indices(flat), self._indices(wanted)


class _Sums:
    def __init__(self) -> None:
        self.policy = self.env = self.env_nll = 0.0
        self.n_env = 0
        self.log_ratios: list[float] = []
        self.entropies: list[float] = []


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
