"""A model in training on a Tinker-protocol server; see `backends.base.Session`.

The loop stays here: rows, advantages, weights of the streams and the learning rate are ours, and
the server computes passes and steps. One route of ECHO (`training.tinker.routes`) is used for the
whole job. Each call is awaited before the next: some servers run calls that are pending together
under the loss of the first.

Weights stay on the server. A checkpoint holds two paths there, one with the optimiser's moments and
one that samplers load; what is published is a folder with the second in `tinker.json`. A failed
call fails the session, as in the SDK: the way on is a new session from the last checkpoint.

Every wait has a deadline. The protocol computes at temperature 1, and the server decides on alpha
of the adapter.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import tinker
from tinker import types

from training.backends.base import AdamSpec, OptimStats, PassStats, WeightVersion
from training.checkpoint import write_folder
from training.errors import (
    CheckpointError,
    ConfigurationError,
    NumericalError,
    RemoteError,
)
from training.losses import Streams
from training.tinker import data
from training.tinker.connection import ended, finish, service_of
from training.types import MismatchCorrection, ObjectiveSpec, Row

T = TypeVar("T")

POINTER_FILE = "tinker.json"
"""Of a published folder: which weights on which server."""
STATE_FILE = "tinker-state.json"
"""Of a checkpoint: where weights and moments are kept."""
ADAPTER_FOLDER = "adapter"
MAX_SKIPPED_STEPS = 3
NORM_WORDS = ("grad_norm", "grad_l2", "gradient_norm")


@dataclass(frozen=True, slots=True)
class TinkerSpec:
    """What to train, and where."""

    base_url: str
    api_key: str
    model: str
    """Name of the base model there."""
    rank: int
    seed: int
    name: str
    """What saved weights are called there, before the step."""
    route: str = "A"
    timeout_s: float = 900.0
    """Of one call."""


class TinkerSession:
    """See the module. Not for use by several threads."""

    weights_file = POINTER_FILE

    def __init__(self, spec: TinkerSpec, *, on_wait: Callable[[], None] = lambda: None) -> None:
        self.spec = spec
        self._on_wait = on_wait
        self._service = service_of(spec.base_url, spec.api_key, on_wait=on_wait)
        self._client: tinker.TrainingClient = self._ended(
            self._service.create_lora_training_client(
                base_model=spec.model, rank=spec.rank, seed=spec.seed, train_unembed=False
            ),
            "create a model",
        )
        self._step = 0
        self._has_gradient = False
        self._skipped = 0
        self._pointer = b""
        self._loss: Any = None

    def forward(self, rows: Sequence[Row], *, temperature: float) -> Future[list[list[float]]]:
        """Log-probs of every target of each row."""
        if temperature != 1.0:
            raise ConfigurationError(
                f"temperature: {temperature:g}, but the Tinker protocol computes at 1"
            )
        return _done(self._forward(rows))

    def scored(self, rows: Sequence[Row], spec: ObjectiveSpec) -> Future[list[Row]]:
        """Rows with the log-probs that `spec` asks for beside the sampler's.

        The reference policy is the base model, which the server samples from.
        """
        scored = list(rows)
        if spec.kl_coef != 0.0:
            scored = [
                row
                if row.reference_logprobs is not None
                else replace(row, reference_logprobs=(0.0, *self._of_base(row)))
                for row in scored
            ]
        if spec.mismatch is not MismatchCorrection.NONE:
            scored = [
                replace(row, trainer_logprobs=(0.0, *values))
                for row, values in zip(scored, self._forward(rows), strict=True)
            ]
        return _done(scored)

    def forward_backward(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        *,
        on_pack: Callable[[], None] = lambda: None,
    ) -> Future[PassStats]:
        """Add the gradient of these rows by the session's route."""
        started = time.monotonic()
        calls = self._calls(rows, streams, spec)
        logprobs: dict[int, list[float]] = {}
        for call in calls:
            output = self._ended(self._submit(call, spec), f"forward_backward ({call.loss_fn})")
            # Both calls of route A see the same weights; they differ in which rows they have.
            for i, values in zip(call.rows, _logprobs(output), strict=True):
                if len(values) > len(logprobs.get(i, ())):
                    logprobs[i] = values
            on_pack()
        self._has_gradient = self._has_gradient or bool(calls)
        return _done(
            data.pass_stats(
                rows,
                streams,
                spec,
                logprobs,
                calls=len(calls),
                seconds=time.monotonic() - started,
            )
        )

    def optim_step(self, adam: AdamSpec) -> Future[OptimStats]:
        """Clip and step on the server; without a gradient nothing is asked.

        Raises NumericalError at the third step in a row whose gradient was not finite.
        """
        self._step += 1
        if not self._has_gradient:
            return _done(OptimStats(grad_norm=0.0, is_skipped=False, skipped_in_a_row=0))
        params = types.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.clip_norm,
        )
        answer = self._ended(self._client.optim_step(params), "optim_step")
        self._has_gradient = False
        norm = _norm(answer.metrics or {})
        is_skipped = norm is not None and not math.isfinite(norm)
        self._skipped = self._skipped + 1 if is_skipped else 0
        if self._skipped >= MAX_SKIPPED_STEPS:
            raise NumericalError(f"the gradient was not finite in {self._skipped} steps in a row")
        return _done(
            OptimStats(
                grad_norm=math.nan if norm is None else norm,
                is_skipped=is_skipped,
                skipped_in_a_row=self._skipped,
            )
        )

    def state_files(self) -> dict[str, bytes]:
        """Saves on the server; the files of a checkpoint say where."""
        name = f"{self.spec.name}-{self._step:06d}"
        state = self._ended(self._client.save_state(name), "save_state")
        sampler = self._ended(self._client.save_weights_for_sampler(name), "save for sampling")
        self._pointer = self._pointer_to(sampler.path)
        kept = {"path": state.path, "step": self._step, "skipped_in_a_row": self._skipped}
        return {
            f"{ADAPTER_FOLDER}/{POINTER_FILE}": self._pointer,
            STATE_FILE: _json(kept),
        }

    def save_state(self, folder: Path) -> Future[None]:
        """Write `state_files` to a folder, atomically."""
        write_folder(folder, self.state_files())
        return _done(None)

    def load_state(self, folder: Path) -> Future[None]:
        """Continue from a checkpoint: a new client on the server, behind the same session.

        Raises CheckpointError if the server does not have the state any more.
        """
        try:
            kept = json.loads((folder / STATE_FILE).read_bytes())
            self._pointer = (folder / ADAPTER_FOLDER / POINTER_FILE).read_bytes()
            path = str(kept["path"])
            self._step, self._skipped = int(kept["step"]), int(kept["skipped_in_a_row"])
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"{folder / STATE_FILE}: {error}") from error
        try:
            self._client = self._ended(
                self._service.create_training_client_from_state_with_optimizer(path),
                f"load {path}",
            )
        except RemoteError as error:
            raise CheckpointError(f"{folder.name}: {error}") from error
        self._has_gradient = False
        return _done(None)

    def publish(self, root: Path, number: int) -> Future[WeightVersion]:
        """`root/v0001` with a pointer to the weights that the last checkpoint saved.

        Before any checkpoint it saves the weights that the job begins with.
        """
        if not self._pointer:
            name = f"{self.spec.name}-{self._step:06d}"
            saved = self._ended(self._client.save_weights_for_sampler(name), "save for sampling")
            self._pointer = self._pointer_to(saved.path)
        name = f"v{number:04d}"
        write_folder(root / name, {POINTER_FILE: self._pointer})
        digest = hashlib.sha256(self._pointer).hexdigest()
        return _done(WeightVersion(number, name, root / name, digest))

    def close(self) -> None:
        """Ends the session on the server; what was saved stays."""
        finish(self._service)

    # --- calls -------------------------------------------------------------------------------

    def _calls(self, rows: Sequence[Row], streams: Streams, spec: ObjectiveSpec) -> list[data.Call]:
        if self.spec.route == "B":
            return _present(data.signed_call(rows, streams))
        if self.spec.route == "A":
            old = self._missing_old(rows, streams)
            policy = data.policy_call(rows, streams, spec, old)
            return _present(policy, data.env_call(rows, streams))
        chosen = data.weighted_rows(streams)
        if not chosen:
            return []
        return [data.Call("custom", chosen, data.loss_data(rows, streams))]

    def _submit(self, call: data.Call, spec: ObjectiveSpec) -> Any:
        if call.loss_fn != "custom":
            return self._client.forward_backward(call.data, call.loss_fn, call.config or None)  # type: ignore[arg-type] # names of losses
        loss = data.own_loss(spec)
        if self.spec.route == "C":
            return self._client.forward_backward_custom(call.data, data.on_each(loss))
        # Lambda is in the weights: a schedule changes the spec and not the graph, and a session
        # takes each graph once.
        shape = replace(spec, lambda_env=0.0)
        if self._loss is None or self._loss[0] != shape:
            ranks: dict[str, Any] = dict.fromkeys(("logprobs", *data.OWN_INPUTS), 1)
            handle = self._ended(self._service.create_custom_loss(loss, ranks), "send the loss")
            self._loss = (shape, handle)
        return self._client.forward_backward_custom(call.data, self._loss[1])

    def _missing_old(self, rows: Sequence[Row], streams: Streams) -> dict[int, list[float]]:
        """The current policy's, for rows whose sampler gave none: their ratio is 1."""
        missing = [
            i
            for i, stream in enumerate(streams.rows)
            if stream.rl_targets and stream.rl_old_logprobs is None
        ]
        found = self._forward([rows[i] for i in missing])
        return dict(zip(missing, found, strict=True))

    def _forward(self, rows: Sequence[Row]) -> list[list[float]]:
        if not rows:
            return []
        given = [
            data.datum(row, n, {"weights": [1.0] * n})
            for row, n in ((row, len(row.ids) - 1) for row in rows)
        ]
        output = self._ended(self._client.forward(given, "cross_entropy"), "forward")
        return _logprobs(output)

    def _of_base(self, row: Row) -> list[float]:
        sampler = self._ended(
            self._service.create_sampling_client(base_model=self.spec.model), "sample the base"
        )
        prompt = types.ModelInput.from_ints(list(row.ids))
        found = self._ended(sampler.compute_logprobs(prompt), "score with the base")
        return [float(value) for value in found[1:]]

    def _pointer_to(self, path: str) -> bytes:
        return _json({"base_url": self.spec.base_url, "model": self.spec.model, "path": path})

    def _ended(self, future: Any, what: str) -> Any:
        return ended(
            future, f"{self.spec.base_url}: {what}", self.spec.timeout_s, on_wait=self._on_wait
        )


def _logprobs(output: types.ForwardBackwardOutput) -> list[list[float]]:
    return [[float(v) for v in each["logprobs"].data] for each in output.loss_fn_outputs]


def _norm(metrics: dict[str, float]) -> float | None:
    """The gradient's norm before clipping, under whichever name the server gives it."""
    for name, value in metrics.items():
        if any(word in name for word in NORM_WORDS):
            return float(value)
    return None


def _present(*calls: data.Call | None) -> list[data.Call]:
    return [call for call in calls if call is not None]


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
