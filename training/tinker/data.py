"""Rows and streams of a step as data of the Tinker SDK, and what is told from its answers.

A datum ends where the last target of its row is: what lies behind is neither sent nor computed.
Positions that carry no weight hold zeros, which no loss of the protocol turns into a gradient: an
advantage or a weight of 0 multiplies every term.

The protocol's losses are plain sums and the streams' weights are divided already, so an advantage
is sent times its weight. That is exact for every loss here because weights are not negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from tinker import types
from torch import Tensor

from training import objective
from training.backends.base import PassStats
from training.losses import RowStream, Streams
from training.tinker.routes import named_loss
from training.types import ObjectiveSpec, Row

Logprobs = Mapping[int, Sequence[float]]
"""Index of a row to the log-probabilities of its targets, as far as its datum goes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One forward_backward: which rows, under which loss."""

    loss_fn: str
    rows: tuple[int, ...]
    data: list[types.Datum]
    config: dict[str, float] = field(default_factory=dict)


def policy_call(
    rows: Sequence[Row], streams: Streams, spec: ObjectiveSpec, old: Logprobs
) -> Call | None:
    """The policy term by a loss of the protocol; None where no row has one.

    `old`: what the ratio is taken to, for rows that bring none. The objective must be one that
    `routes.named_loss` knows.
    """
    name, config = named_loss(spec)
    chosen = tuple(i for i, stream in enumerate(streams.rows) if stream.rl_targets)
    data = []
    for i in chosen:
        stream = streams.rows[i]
        n = _length(stream)
        weights = _spread(stream.rl_targets, signed_weights(stream), n)
        if name == "cross_entropy":
            data.append(datum(rows[i], n, {"weights": weights}))
            continue
        given = stream.rl_old_logprobs
        before = given if given is not None else [old[i][t] for t in stream.rl_targets]
        inputs = {"logprobs": _spread(stream.rl_targets, before, n), "advantages": weights}
        data.append(datum(rows[i], n, inputs))
    return Call(name, chosen, data, config) if chosen else None


def env_call(rows: Sequence[Row], streams: Streams) -> Call | None:
    """The environment term as cross-entropy; None where there is none."""
    chosen = tuple(i for i, stream in enumerate(streams.rows) if stream.env_targets)
    data = [
        datum(rows[i], n, {"weights": _spread(stream.env_targets, stream.env_weights, n)})
        for i, stream in ((i, streams.rows[i]) for i in chosen)
        for n in (_length(stream),)
    ]
    return Call("cross_entropy", chosen, data) if chosen else None


def signed_call(rows: Sequence[Row], streams: Streams) -> Call | None:
    """Both terms as one cross-entropy: REINFORCE, and what any ratio of one comes to."""
    chosen = weighted_rows(streams)
    data = []
    for i in chosen:
        stream = streams.rows[i]
        n = _length(stream)
        weights = _spread(stream.rl_targets, signed_weights(stream), n)
        for t, weight in zip(stream.env_targets, stream.env_weights, strict=True):
            weights[t] += weight
        data.append(datum(rows[i], n, {"weights": weights}))
    return Call("cross_entropy", chosen, data) if chosen else None


def loss_data(rows: Sequence[Row], streams: Streams) -> list[types.Datum]:
    """Data of the weighted rows with all that `own_loss` reads."""
    data = []
    for i in weighted_rows(streams):
        stream = streams.rows[i]
        n, targets = _length(stream), stream.rl_targets
        size = len(targets)
        old = stream.rl_old_logprobs
        inputs = {
            "has_old": _spread(targets, [float(old is not None)] * size, n),
            "old_logprobs": _spread(targets, old or [0.0] * size, n),
            "advantages": _spread(targets, [stream.advantage or 0.0] * size, n),
            "rl_weights": _spread(targets, stream.rl_weights, n),
            "reference": _spread(targets, stream.rl_reference or [0.0] * size, n),
            "env_weights": _spread(stream.env_targets, stream.env_weights, n),
        }
        data.append(datum(rows[i], n, inputs))
    return data


def weighted_rows(streams: Streams) -> tuple[int, ...]:
    """Rows that any loss meets."""
    return tuple(i for i, each in enumerate(streams.rows) if each.rl_targets or each.env_targets)


def datum(row: Row, n: int, floats: Mapping[str, Sequence[float]]) -> types.Datum:
    """The first `n` targets of a row."""
    inputs = {
        "target_tokens": types.TensorData(data=list(row.ids[1 : n + 1]), dtype="int64", shape=[n]),
        **{
            name: types.TensorData(data=list(values), dtype="float32", shape=[n])
            for name, values in floats.items()
        },
    }
    return types.Datum(
        model_input=types.ModelInput.from_ints(list(row.ids[:n])), loss_fn_inputs=inputs
    )


OWN_INPUTS = (
    "has_old",
    "old_logprobs",
    "advantages",
    "rl_weights",
    "reference",
    "env_weights",
)
"""What `own_loss` reads of a datum beside the log-probabilities, in its order."""


def own_loss(spec: ObjectiveSpec) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
    """Both terms of one datum, in a form that torch.fx can trace: no branch on a value.

    The objective itself is the trainer's (`training.objective`); positions without a weight are
    taken out first, because an impossible token times 0 would be nan.
    """

    def echo(
        logprobs: Tensor,
        has_old: Tensor,
        old_logprobs: Tensor,
        advantages: Tensor,
        rl_weights: Tensor,
        reference: Tensor,
        env_weights: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        is_weighted_T = (rl_weights != 0.0) | (env_weights != 0.0)
        lp_T = torch.where(is_weighted_T, logprobs, 0.0)
        old_T = torch.where(has_old != 0.0, old_logprobs, lp_T.detach())
        targets = objective.PolicyTargets(rl_weights, advantages, old_T, reference)
        policy = objective.policy_loss(lp_T, targets, spec)
        return policy + objective.env_loss(lp_T, env_weights), {}

    return echo


def on_each(
    loss: Callable[..., tuple[Tensor, dict[str, Tensor]]],
) -> Callable[[list[types.Datum], list[Tensor]], tuple[Tensor, dict[str, float]]]:
    """A loss of one datum as the SDK runs it here: the sum over all."""

    def summed(data: list[types.Datum], logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
        parts = [
            loss(lp_T, *(each.loss_fn_inputs[name].to_torch() for name in OWN_INPUTS))[0]
            for each, lp_T in zip(data, logprobs, strict=True)
        ]
        return torch.stack(parts).sum(), {}

    return summed


def signed_weights(stream: RowStream) -> list[float]:
    """Advantage times weight, per target of the policy."""
    return [weight * (stream.advantage or 0.0) for weight in stream.rl_weights]


def pass_stats(
    rows: Sequence[Row],
    streams: Streams,
    spec: ObjectiveSpec,
    logprobs: Logprobs,
    *,
    calls: int,
    seconds: float,
) -> PassStats:
    """What a pass saw, computed here from the log-probabilities that came back.

    Entropies are not part of the protocol.
    """
    members = [streams.rows[i] for i in logprobs]
    dtype = torch.float64
    policy_N = _picked(logprobs, [stream.rl_targets for stream in members])
    env_N = _picked(logprobs, [stream.env_targets for stream in members])
    targets = objective.policy_targets(members, dtype=dtype)
    weights_N = objective.env_weights(members, dtype=dtype)
    policy = float(objective.policy_loss(policy_N, targets, spec))
    env = float(objective.env_loss(env_N, weights_N)) if streams.has_env else None
    gaps_N = policy_N - targets.old_logprobs_N
    reference_N = targets.reference_N - policy_N
    distance = float(torch.nansum(torch.exp(reference_N) - 1.0 - reference_N))
    lengths = [_length(stream) for stream in members]
    return PassStats(
        loss=policy + (env or 0.0),
        policy_loss=policy,
        env_loss=None if env is None else env / spec.lambda_env,
        log_ratios=tuple(gaps_N[~torch.isnan(targets.old_logprobs_N)].tolist()),
        entropies=(),
        env_nll_sum=-float(env_N.sum()),
        n_env_tokens=len(env_N),
        row_tokens=sum(lengths),
        packed_tokens=sum(lengths),
        packs=calls,
        seconds=seconds,
        clipped=objective.count_clipped(policy_N, targets, spec),
        reference_kl_sum=distance,
    )


def _picked(logprobs: Logprobs, targets_R: Sequence[Sequence[int]]) -> Tensor:
    values = [
        row[t] for row, targets in zip(logprobs.values(), targets_R, strict=True) for t in targets
    ]
    return torch.tensor(values, dtype=torch.float64)


def _length(stream: RowStream) -> int:
    return 1 + max((*stream.rl_targets, *stream.env_targets), default=0)


def _spread(targets: Iterable[int], values: Iterable[float], n: int) -> list[float]:
    spread = [0.0] * n
    for t, value in zip(targets, values, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"target {t}: {value} is not finite")
        spread[t] = value
    return spread
