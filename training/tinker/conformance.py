"""Which ECHO routes a Tinker-protocol server may be trusted with; asked before any training.

Servers that speak the protocol differ in what a loss means: some divide each sequence by the sum of
its weights, some merge calls that are pending together under the loss of the first, some ignore
the gradient clip. Nothing of it is an error to them, so it is measured, with fresh clients of one
seed and a single step each.

Adam's first step does not depend on the size of a gradient. With eps far above its largest entry,
and the learning rate raised as much, the step is nearly linear in it: then a tenfold loss moves
log-probabilities tenfold, two losses move them by the sum of what each does, and a clip shrinks the
move. All of it is told from log-probabilities before and after; nothing of the server is assumed.

What the routes are is said in `routes`. `D` is measured where the server takes a traced loss at
all; elsewhere the SDK would run it here, which is C. Source: reference document on training,
sections 4 and 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import tinker
import torch
from tinker import types
from torch import Tensor

from training.tinker.connection import ended
from training.tinker.data import OWN_INPUTS, own_loss
from training.tinker.routes import ORDER, WHAT
from training.types import ObjectiveSpec, PolicyLoss

EPS, WEIGHT = 100.0, 0.1
"""Of Adam, and of a token in the losses."""
FIRST_RATE, MOST_RATES, MOVE = 300.0, 9, 0.02
"""The learning rate falls tenfold until a step moves the log-probabilities by no more than this in
all: above rounding, and within the linear range whatever the model."""
TOLERANCE = 0.05
"""Relative, of what should be equal to first order. A defect is off by a factor, not by a per cent.
"""
RANK, SEED = 8, 7
TIMEOUT_S = 300.0
"""Of one question, unless told otherwise."""
NOT_RUN_THERE = (
    "Route D (a custom loss that the server runs): this server takes none; the SDK would run it "
    "here in two passes, which is route C."
)


@dataclass(frozen=True)
class Conformance:
    """What the probe found; stored with the job."""

    loss_scale: str
    """`sum`, `normalised`, or `unknown` where eps is ignored and no scale can be seen."""
    honours_clip: bool
    honours_thresholds: bool
    merges_pending: bool
    """Calls that are pending together run under the loss of the first: await each."""
    routes: tuple[str, ...]
    """Allowed, in the order in which they are taken; what of them fits an objective is said by
    `routes.choose`."""
    refused: dict[str, str] = field(default_factory=dict)
    """Route to a sentence."""
    problems: tuple[str, ...] = ()
    """In words, all that differs from the protocol."""

    @property
    def route(self) -> str | None:
        """What the backend uses; None: it refuses the server."""
        return self.routes[0] if self.routes else None

    def refusal(self, *, clip_norm: float) -> str:
        """Why nothing is trained there, or empty."""
        if self.route is None:
            return " ".join(["No ECHO route is exact on this server.", *self.problems])
        if clip_norm > 0 and not self.honours_clip:
            return (
                "The server ignores the gradient clip that the manifest asks for "
                f"({clip_norm:g}): set optimiser.clip_norm to 0, or use another server."
            )
        return ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def probe(
    service: tinker.ServiceClient,
    base_model: str,
    *,
    timeout_s: float = TIMEOUT_S,
    on_wait: Callable[[], None] = lambda: None,
) -> Conformance:
    """Asks a server a dozen small questions.

    Raises RemoteError where it fails outright, DeadlineExceeded, and what `on_wait` raises.
    """
    return _Probe(service, base_model, timeout_s, on_wait).run()


class _Probe:
    def __init__(
        self,
        service: tinker.ServiceClient,
        base_model: str,
        timeout_s: float = TIMEOUT_S,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self.service, self.base_model = service, base_model
        self._timeout_s, self._on_wait = timeout_s, on_wait
        first = self._client()
        prompt = list(range(2, 10))
        sampler = self._ended(first.save_weights_and_get_sampling_client())
        params = types.SamplingParams(max_tokens=8, seed=SEED, temperature=1.0)
        sampled = self._ended(
            sampler.sample(
                prompt=types.ModelInput.from_ints(prompt), num_samples=1, sampling_params=params
            )
        )
        self.actions = [int(token) for token in sampled.sequences[0].tokens]
        ids = [*prompt, *self.actions, *range(3, 9)]
        self.tokens, self.targets = ids[:-1], ids[1:]
        start = len(prompt) - 1
        self.is_action = [start <= i < start + len(self.actions) for i in range(len(self.targets))]
        self.is_observation = [i >= start + len(self.actions) for i in range(len(self.targets))]
        self.base = self._score(first)
        self.rate = self._calibrated()

    def run(self) -> Conformance:
        problems: list[str] = []
        policy = self._moved([("importance_sampling", self._policy())])
        env = self._moved([("cross_entropy", self._env())])
        expected = policy + env
        tenfold = self._moved([("cross_entropy", self._env(10.0))])
        growth = _norm(tenfold) / max(_norm(env), 1e-12)
        scale = self._scale(growth, problems)
        honours_clip = self._honours_clip(env, problems)
        honours_thresholds = self._honours_thresholds(policy, problems)

        awaited = self._moved(
            [("importance_sampling", self._policy()), ("cross_entropy", self._env())]
        )
        pending = self._moved(
            [("importance_sampling", self._policy()), ("cross_entropy", self._env())],
            awaits=False,
        )
        merges = _distance(pending, awaited) > TOLERANCE
        if merges:
            problems.append("It merges calls that are pending together under the first one's loss.")
        found = {
            "A": _distance(awaited, expected),
            "B": _distance(self._moved([("cross_entropy", self._signed())]), expected),
            "C": _distance(self._custom(), expected),
        }
        traced = self._traced()
        if traced is not None:
            found["D"] = _distance(traced, expected)
        refused = {
            name: self._why(name, off, scale) for name, off in found.items() if off > TOLERANCE
        }
        if scale != "sum":
            # Relative weights of the two terms are then not ours to choose, whatever agrees here.
            refused |= {
                name: self._why(name, found[name], scale) for name in found if name not in refused
            }
        if traced is None:
            refused["D"] = NOT_RUN_THERE
        return Conformance(
            loss_scale=scale,
            honours_clip=honours_clip,
            honours_thresholds=honours_thresholds,
            merges_pending=merges,
            routes=tuple(name for name in ORDER if name not in refused),
            refused=refused,
            problems=tuple(problems),
        )

    def _calibrated(self) -> float:
        self.rate = FIRST_RATE
        for _ in range(MOST_RATES):
            if _norm(self._moved([("cross_entropy", self._env())])) <= MOVE:
                break
            self.rate /= 10.0
        return self.rate

    # --- questions ---------------------------------------------------------------------------

    def _scale(self, growth: float, problems: list[str]) -> str:
        if abs(growth - 10.0) < 2.0:
            return "sum"
        if growth < 1.5:
            problems.append(
                "A tenfold loss moves the weights as far as the plain one: each sequence is "
                "divided by the sum of its weights, or eps is ignored."
            )
            return "normalised"
        problems.append(f"A tenfold loss moves the weights {growth:.1f} times as far, not ten.")
        return "unknown"

    def _honours_clip(self, env: Tensor, problems: list[str]) -> bool:
        clipped = self._moved([("cross_entropy", self._env())], clip=1e-3)
        if _norm(clipped) < 0.5 * _norm(env):
            return True
        problems.append("It ignores grad_clip_norm.")
        return False

    def _honours_thresholds(self, policy: Tensor, problems: list[str]) -> bool:
        """At a ratio of 1.5 and a positive advantage, a clip at 1.2 leaves no gradient."""
        lowered = self._policy(shift=-math.log(1.5))
        config = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
        moved = self._moved([("ppo", lowered)], config=config)
        if _norm(moved) < 0.05 * _norm(policy):
            return True
        problems.append("It does not take clip thresholds as bounds on the ratio.")
        return False

    def _why(self, route: str, off: float, scale: str) -> str:
        if scale == "normalised":
            reason = "the server divides each sequence by the sum of its weights"
        elif scale == "unknown":
            reason = "the server's losses are no plain sums"
        else:
            reason = "the two terms do not add up there"
        return f"Route {route} ({WHAT[route]}) is off by {100 * off:.0f} %: {reason}."

    # --- one step each -----------------------------------------------------------------------

    def _moved(
        self,
        calls: Sequence[tuple[str, types.Datum]],
        *,
        clip: float = 0.0,
        awaits: bool = True,
        config: dict[str, float] | None = None,
    ) -> Tensor:
        """How far the log-probabilities go in a step over these calls."""
        client = self._client()
        futures = []
        for loss_fn, datum in calls:
            future = client.forward_backward([datum], loss_fn, config)  # type: ignore[arg-type] # names
            if awaits:
                self._ended(future)
            futures.append(future)
        return self._step(client, futures, clip)

    def _custom(self) -> Tensor:
        client = self._client()
        action, observation = torch.tensor(self.is_action), torch.tensor(self.is_observation)
        old = torch.tensor(self.base)

        def echo(
            data: list[types.Datum], logprobs: list[Tensor]
        ) -> tuple[Tensor, dict[str, float]]:
            del data
            lp = logprobs[0]
            policy = -WEIGHT * torch.exp(lp - old)[action].sum()
            return policy - WEIGHT * lp[observation].sum(), {}

        plain = self._datum({"weights": [1.0] * len(self.targets)})
        return self._step(client, [client.forward_backward_custom([plain], echo)], 0.0)

    def _traced(self) -> Tensor | None:
        """By a loss that the server runs; None where it takes none."""
        if not hasattr(self.service, "create_custom_loss"):
            return None
        loss = own_loss(ObjectiveSpec(policy_loss=PolicyLoss.IMPORTANCE))
        ranks: dict[str, Any] = dict.fromkeys(("logprobs", *OWN_INPUTS), 1)
        handle = self._ended(self.service.create_custom_loss(loss, ranks))
        if handle.loss_id is None:
            return None
        acting = [float(acts) for acts in self.is_action]
        datum = self._datum(
            {
                "has_old": acting,
                "old_logprobs": self.base,
                "advantages": acting,
                "rl_weights": [WEIGHT * acts for acts in acting],
                "reference": [0.0] * len(acting),
                "env_weights": [WEIGHT * seen for seen in self.is_observation],
            }
        )
        client = self._client()
        return self._step(client, [client.forward_backward_custom([datum], handle)], 0.0)

    def _step(self, client: tinker.TrainingClient, futures: Sequence[Any], clip: float) -> Tensor:
        adam = types.AdamParams(
            learning_rate=self.rate,
            beta1=0.9,
            beta2=0.95,
            eps=EPS,
            weight_decay=0.0,
            grad_clip_norm=clip,
        )
        step = client.optim_step(adam)
        for future in futures:
            self._ended(future)
        self._ended(step)
        return torch.tensor(self._score(client)) - torch.tensor(self.base)

    def _client(self) -> tinker.TrainingClient:
        made: tinker.TrainingClient = self._ended(
            self.service.create_lora_training_client(
                base_model=self.base_model, rank=RANK, seed=SEED, train_unembed=False
            )
        )
        return made

    def _ended(self, future: Any) -> Any:
        return ended(future, "the probe", self._timeout_s, on_wait=self._on_wait)

    def _score(self, client: tinker.TrainingClient) -> list[float]:
        datum = self._datum({"weights": [1.0] * len(self.targets)})
        output = self._ended(client.forward([datum], "cross_entropy"))
        return [float(value) for value in output.loss_fn_outputs[0]["logprobs"].data]

    # --- data --------------------------------------------------------------------------------

    def _policy(self, shift: float = 0.0) -> types.Datum:
        """On-policy, advantage 1."""
        return self._datum(
            {
                "logprobs": [value + shift for value in self.base],
                "advantages": [WEIGHT if acts else 0.0 for acts in self.is_action],
            }
        )

    def _env(self, factor: float = 1.0) -> types.Datum:
        weights = [WEIGHT * factor if seen else 0.0 for seen in self.is_observation]
        return self._datum({"weights": weights})

    def _signed(self) -> types.Datum:
        either = zip(self.is_action, self.is_observation, strict=True)
        return self._datum({"weights": [WEIGHT if acts or seen else 0.0 for acts, seen in either]})

    def _datum(self, floats: dict[str, list[float]]) -> types.Datum:
        n = len(self.targets)
        inputs = {
            "target_tokens": types.TensorData(data=self.targets, dtype="int64", shape=[n]),
            **{
                name: types.TensorData(data=values, dtype="float32", shape=[n])
                for name, values in floats.items()
            },
        }
        return types.Datum(
            model_input=types.ModelInput.from_ints(self.tokens), loss_fn_inputs=inputs
        )


def _norm(moved: Tensor) -> float:
    return float(moved.norm())


def _distance(moved: Tensor, expected: Tensor) -> float:
    return float((moved - expected).norm() / max(float(expected.norm()), 1e-12))
