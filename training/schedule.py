"""Learning rate and lambda as pure functions of the step.

A checkpoint stores the inputs of these functions, never their last value: extending the horizon
then keeps the past as it was and defines the future by the new horizon (transformers#34053).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from training.errors import ConfigurationError


class RateKind(StrEnum):
    """Shape of the learning rate after warm-up."""

    CONSTANT = "constant"
    """The base rate."""
    LINEAR = "linear"
    """A straight line down to the floor."""
    COSINE = "cosine"
    """Half a cosine down to the floor."""


@dataclass(frozen=True, slots=True)
class RateSpec:
    """Inputs of the learning rate."""

    base: float = 1e-4
    kind: RateKind = RateKind.CONSTANT
    warmup_steps: int = 0
    horizon_steps: int = 1
    floor: float = 0.0
    """Share of the base rate that is left at the horizon, 0 to 1."""


def learning_rate(step: int, spec: RateSpec) -> float:
    """Rate of optimiser step `step`, counted from 0; flat after the horizon."""
    if step < spec.warmup_steps:
        return spec.base * (step + 1) / spec.warmup_steps
    if spec.kind is RateKind.CONSTANT:
        return spec.base
    span = max(spec.horizon_steps - spec.warmup_steps, 1)
    left = 1.0 - min(1.0, (step - spec.warmup_steps) / span)
    if spec.kind is RateKind.COSINE:
        left = 0.5 * (1.0 - math.cos(math.pi * left))
    return spec.base * (spec.floor + (1.0 - spec.floor) * left)


@dataclass(frozen=True, slots=True)
class CoefficientSchedule:
    """Lambda per optimiser step.

    `constant`: initial. `linear_decay`: from initial to final over total_steps, then flat.
    `step_decay`: the value of the last (step, value) whose step is not after the current one.
    """

    kind: str
    initial: float
    final: float = 0.0
    total_steps: int = 0
    changes: tuple[tuple[int, float], ...] = ()

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> CoefficientSchedule:
        """Read the JSON form; `step_decay` takes a transition_step or lists of steps and values."""
        kind = str(fields["schedule"])
        if kind == "constant":
            return cls(kind=kind, initial=float(fields["initial"]))
        if kind == "linear_decay":
            return cls(
                kind=kind,
                initial=float(fields["initial"]),
                final=float(fields.get("final", 0.0)),
                total_steps=int(fields["total_steps"]),
            )
        if kind != "step_decay":
            raise ConfigurationError(
                f"schedule: {kind!r} is unknown; use constant, linear_decay or step_decay"
            )
        if fields.get("steps") is not None:
            pairs = zip(fields["steps"], fields["values"], strict=True)
            changes = tuple(sorted((int(step), float(value)) for step, value in pairs))
            initial = fields.get("initial")
            start = float(initial) if initial is not None else changes[0][1]
            return cls(kind=kind, initial=start, changes=changes)
        change = (int(fields["transition_step"]), float(fields["final"]))
        return cls(kind=kind, initial=float(fields["initial"]), changes=(change,))

    def value(self, step: int) -> float:
        """Coefficient of optimiser step `step`, counted from 0."""
        if self.kind == "linear_decay":
            share = 1.0 if self.total_steps <= 0 else min(step / self.total_steps, 1.0)
            return self.initial + (self.final - self.initial) * share
        current = self.initial
        for change_step, value in self.changes:
            if change_step <= step:
                current = value
        return current
