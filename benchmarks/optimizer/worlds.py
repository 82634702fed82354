"""What a world is to the benchmark of optimisers, and the one server through which it is spent.

A world knows the exact quality of every document, so an optimiser can be judged by what it gained
and not by what it reports. `docs/how-to/bring-a-world.md` is for those who write one.

Nothing in this file or in a world may import the product: rivals run in an environment of their
own, with numpy and themselves alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast


@dataclass(frozen=True)
class Setting:
    """One cell of the benchmark, as `ruleworld` understands it; other worlds may ignore all of it
    but the budget.
    """

    mode: str = "interactions"
    """none, interactions, conflict or null."""
    precision: float = 0.5
    """Probability that a lesson is a right one."""
    budget: int = 600
    """Rollouts of one run, certification included."""
    scale: float = 1.0
    """Of the effects."""
    reward: str = "bern"
    """bern (pass or fail), rubric4 (mean of four criteria) or none (no noise)."""


class Outcome(NamedTuple):
    """Of one rollout."""

    reward: float
    """0 to 1."""
    lesson: str = ""
    """What an analyst suggests after reading the trace: one line of text that is one edit. Empty
    where there is nothing to learn.
    """


class World(Protocol):
    """One random draw of tasks and of what helps on them.

    A class may also have

    - `budget`: rollouts of a run where none is named; 600 without it
    - `oracle() -> float`: the gain of the best document known, for shares
    - `select_truth(document) -> float`: as `truth`, over the select tasks; only optimism is
      measured with it, against `truth` without it
    - `extend(document, lessons) -> document`: how lessons enter a document; one appended line each
      without it

    and it need not take a setting.
    """

    @property
    def train(self) -> Sequence[Any]:
        """Tasks to learn on; what a task is, is the world's business. A plain attribute will do."""
        ...

    @property
    def select(self) -> Sequence[Any]:
        """Tasks to choose or to certify on."""
        ...

    @property
    def seed_document(self) -> str: ...

    def __init__(self, seed: int, setting: Setting | None) -> None: ...

    def rollout(self, task: Any, document: str) -> Outcome:
        """One noisy trial, from a stream of the world's own. A plain pair will do."""
        ...

    def truth(self, document: str) -> float:
        """The document's exact mean reward over tasks that nobody sees."""
        ...


RULEWORLD = "benchmarks.optimizer.ruleworld:RuleWorld"
DEFAULT_BUDGET = 600


_REQUIRED = ("train", "select", "seed_document", "rollout", "truth")


def load(reference: str) -> Callable[..., World]:
    """The class that `module:Class` names. Raises ValueError if there is none."""
    module_name, _, name = reference.partition(":")
    try:
        made = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"--world accepts module:Class, importable from here; {reference}: {error}"
        ) from error
    return cast(Callable[..., World], made)


def make(reference: str, seed: int, setting: Setting | None) -> World:
    """Raises ValueError if it is not what a world is."""
    kind = load(reference)
    takes_setting = len(inspect.signature(kind).parameters) > 1
    world = kind(seed, setting) if takes_setting else kind(seed)
    if missing := [name for name in _REQUIRED if not hasattr(world, name)]:
        raise ValueError(f"{reference} lacks {', '.join(missing)}: see bring-a-world.md")
    return world


def extend(world: World, document: str, lessons: Sequence[str]) -> str:
    """The document with the lessons in it, in their order."""
    own = getattr(world, "extend", None)
    if own is not None:
        return str(own(document, list(lessons)))
    return "\n".join([document, *lessons])


def oracle(world: World) -> float | None:
    """The gain of the best document that is known; None where the world does not say."""
    own = getattr(world, "oracle", None)
    return None if own is None else float(own())


def select_truth(world: World, document: str) -> float:
    own = getattr(world, "select_truth", world.truth)
    return float(own(document))


class Exhausted(BaseException):
    """The budget is spent: the run ends here.

    Not an Exception, so that no engine takes it for a fault of one rollout and goes on.
    """


class Server:
    """The only way to a rollout. Each costs 1, whoever wants it and what for.

    It counts before it serves, so no engine can exceed the budget by a single rollout.
    """

    def __init__(self, world: World, budget: int) -> None:
        self.world = world
        self.budget = budget
        self.used = 0
        self.claim = Claim(world.seed_document)

    @property
    def left(self) -> int:
        return self.budget - self.used

    def rollout(self, task: Any, document: str) -> Outcome:
        """Raises Exhausted."""
        if self.used >= self.budget:
            raise Exhausted(f"all {self.budget} rollouts are spent")
        self.used += 1
        return Outcome(*self.world.rollout(task, document))

    def report(self, claim: Claim) -> None:
        """What an engine would end with if it were interrupted from here on."""
        self.claim = claim


@dataclass(frozen=True)
class Claim:
    """What an engine ends with, in its own words."""

    document: str
    gain: float = 0.0
    """By how much the mean score rose, as the engine tells it."""
    is_improved: bool = False
    """Whether it says that there is an improvement."""


Run = Callable[[Server, int], Claim]
"""An engine: a server and a seed to its claim."""
