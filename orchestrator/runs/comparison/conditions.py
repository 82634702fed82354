"""What sides differ in beside their scores, and what to know before believing them. Pure.

Harness, model, weights and sampling are what a comparison is about; another rubric, environment or
judge makes the numbers incomparable and is warned of, with the difference named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COVERAGE_FLOOR = 0.8
KEYS_NAMED = 5


@dataclass(frozen=True)
class Conditions:
    """Of one side."""

    name: str
    """How the page calls the side."""
    environment: str
    environment_id: int
    rubric: str
    rubric_id: int
    harness: str
    model: str
    weights: str
    judge: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    isolation: str = ""
    has_ended: bool = True
    coverage: float = 1.0
    """Of all its rollouts: scored ÷ (scored + errored)."""
    n_harnesses: int = 1


@dataclass(frozen=True)
class Warned:
    code: str
    text: str


@dataclass(frozen=True)
class Field:
    name: str
    values: Sequence[str]
    """In the order of the sides; empty where there is nothing to say."""

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


FIELDS: Sequence[tuple[str, Callable[[Conditions], str]]] = (
    ("Harness", lambda c: c.harness),
    ("Model", lambda c: c.model),
    ("Weights", lambda c: c.weights),
    ("Sampling", lambda c: ", ".join(f"{k} {_value(v)}" for k, v in sorted(c.sampling.items()))),
    ("Environment", lambda c: c.environment),
    ("Rubric", lambda c: c.rubric),
    ("Judge", lambda c: c.judge),
    ("Seed", lambda c: str(c.seed)),
    ("Isolation", lambda c: c.isolation),
)


def fields_of(sides: Sequence[Conditions]) -> list[Field]:
    """Those that at least one side says something of."""
    fields = [Field(name, [read(side) for side in sides]) for name, read in FIELDS]
    return [each for each in fields if any(each.values)]


def warnings_of(
    sides: Sequence[Conditions],
    missing: Sequence[tuple[Sequence[str], Sequence[str]]],
    changed_tasks: Sequence[str] = (),
) -> list[Warned]:
    """`missing[i]`: tasks that only the baseline has, and that only side i + 1 has.

    `changed_tasks`: keys whose prompt is another one on some side.
    """
    found: list[Warned] = []
    found += _versions(sides, "rubric", "Its scores follow other rules: re-grade one of them.")
    found += _versions(sides, "environment", "Tasks or their grading may have changed.")
    if len({side.judge for side in sides}) > 1:
        judges = "; ".join(f"{side.name} by {side.judge or 'none'}" for side in sides)
        found.append(Warned("judge", f"Other judges decided the criteria: {judges}."))
    if changed_tasks:
        n = len(changed_tasks)
        found.append(Warned("prompt", f"{_tasks(n)} with another prompt: {_named(changed_tasks)}."))
    for side, (only_base, only_side) in zip(sides[1:], missing, strict=True):
        if only_base or only_side:
            parts = [
                f"{_tasks(len(keys))} only in {name} ({_named(keys)})"
                for keys, name in ((only_base, sides[0].name), (only_side, side.name))
                if keys
            ]
            found.append(Warned("tasks", f"{' and '.join(parts)}: shown, and in no difference."))
    for side in sides:
        if side.coverage < COVERAGE_FLOOR:
            found.append(
                Warned(
                    "coverage",
                    f"Only {side.coverage:.0%} of {side.name} has a score, and "
                    f"{COVERAGE_FLOOR:.0%} are needed: there is no verdict on it.",
                )
            )
        if not side.has_ended:
            found.append(Warned("running", f"{side.name} is not at its end; numbers move."))
        if side.n_harnesses > 1:
            found.append(
                Warned(
                    "harnesses",
                    f"{side.name} had {side.n_harnesses} harnesses; all are taken together "
                    "here. Compare them one by one.",
                )
            )
    return found


def _versions(sides: Sequence[Conditions], what: str, meaning: str) -> list[Warned]:
    def used(side: Conditions) -> tuple[int, str]:
        return getattr(side, f"{what}_id"), getattr(side, what)

    base = sides[0]
    others = [side for side in sides[1:] if used(side) != used(base)]
    if not others:
        return []
    is_other = any(used(side)[0] != used(base)[0] for side in others)
    kind = f"another {what}" if is_other else f"another version of the {what}"
    told = ", ".join(f"{side.name} {used(side)[1]}" for side in others)
    return [Warned(what, f"{base.name} used {used(base)[1]}, {told}: {kind}. {meaning}")]


def _tasks(n: int) -> str:
    return f"{n:,} task{'' if n == 1 else 's'}"


def _named(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:KEYS_NAMED])
    return shown if len(keys) <= KEYS_NAMED else f"{shown}, …"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
