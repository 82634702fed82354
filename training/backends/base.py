"""The protocol of a training backend: the Tinker verbs, with futures.

Calls return a future at once, so that a process, HTTP or an SDK can stand behind them. Loss weights
arrive divided by their global denominators (`losses.build_streams`), so a backend only sums, and
gradients add up over calls until `optim_step`. A failed call fails the session; the loop reopens it
from the last checkpoint. The module itself needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from training.losses import Streams
from training.types import ObjectiveSpec, Row


@dataclass(frozen=True, slots=True)
class AdamSpec:
    """All parameters are always sent: defaults differ between engines."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    """0 switches clipping off."""


@dataclass(frozen=True, slots=True)
class PassStats:
    """What one forward_backward saw. Statistics are over the tokens of the policy stream."""

    loss: float
    policy_loss: float
    env_loss: float | None
    """Without lambda; None when lambda is 0."""
    log_ratios: tuple[float, ...]
    """Current minus sampler's log-prob, per token of the policy stream that has a sampler's."""
    entropies: tuple[float, ...]
    """Nats, at the policy's temperature; empty if not asked for."""
    env_nll_sum: float
    """Sum of -log p over environment targets, unweighted."""
    n_env_tokens: int
    row_tokens: int
    """Input tokens if each row stood alone."""
    packed_tokens: int
    """Input tokens the network saw."""
    packs: int
    seconds: float
    halvings: int = 0
    """How often memory ran out and the micro-batch was halved; the gradient is the same."""
    clipped: int = 0
    """Tokens of the policy stream whose gradient the clip or the mask has cut."""
    reference_kl_sum: float = 0.0
    """k3 to the reference policy, summed over the tokens of the policy stream; 0 without one."""


@dataclass(frozen=True, slots=True)
class OptimStats:
    """Outcome of an optimiser step."""

    grad_norm: float
    """Before clipping."""
    is_skipped: bool
    """The gradient was not finite; weights and moments are unchanged."""
    skipped_in_a_row: int


@dataclass(frozen=True, slots=True)
class WeightVersion:
    """Weights that samplers can load; the number only grows."""

    number: int
    name: str
    adapter: Path
    sha256: str
    """Of the adapter's weights file."""


class Session(Protocol):
    """One model in training."""

    def forward(self, rows: Sequence[Row], *, temperature: float) -> Future[list[list[float]]]:
        """Log-probs of every target of each row."""

    def forward_backward(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        *,
        on_pack: Callable[[], None] = ...,
    ) -> Future[PassStats]:
        """Add the gradient of these rows; `streams.rows` has one entry per row.

        `on_pack` is called as the pass moves on; what it raises ends the pass.
        """

    def optim_step(self, adam: AdamSpec) -> Future[OptimStats]:
        """Clip, step, and forget the gradient."""

    def save_state(self, folder: Path) -> Future[None]:
        """Write weights and optimiser state into a folder that the caller makes atomic."""

    def load_state(self, folder: Path) -> Future[None]:
        """Continue from a folder of `save_state`."""

    def publish(self, root: Path, number: int) -> Future[WeightVersion]:
        """Make the current weights loadable by samplers."""


class JobSession(Session, Protocol):
    """What a job asks of a session beside the verbs."""

    def scored(self, rows: Sequence[Row], spec: ObjectiveSpec) -> Future[list[Row]]:
        """Rows with the log-probs that `spec` asks for beside the sampler's (`needs_scores`)."""

    def state_files(self) -> dict[str, bytes]:
        """What `save_state` writes, so that it is written together with the step's metrics."""

    def close(self) -> None:
        """Give back what is held beside memory."""
