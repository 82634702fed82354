"""RuleWorld: documents are sets of rules, of which some help, some do nothing and some harm.

28 rule names are the only content of a document that matters. A task has a type and a difficulty,
and passes with probability

    p = sigmoid(difficulty + Σ over rules in scope of c·w − 0.015·|rules|)

where c is 1, but 0 for a rule that lacks what it needs or that another one makes redundant, and
−½ for each of two rules in conflict. A rollout that fails suggests one rule: with probability
`precision` a good one that the document lacks in this task's scope, and else one that is no good.

Every part of a world comes from a stream of its own, so worlds of one seed share their rules and
tasks over all settings, and rewards do not depend on how many lessons were drawn.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.optimizer.worlds import Outcome, Setting

TYPES = 6
GOOD, NOOP, HARMFUL = 12, 8, 8
RULES = tuple(f"rule-{i:02}" for i in range(GOOD + NOOP + HARMFUL))
TRAIN, SELECT, TEST = 60, 40, 4000
LENGTH_COST = 0.015
"""On the logit scale, for each rule: every instruction costs a little attention."""
_RULE = re.compile(r"rule-(?:0\d|1\d|2[0-7])(?!\d)")

CELLS = {
    "S1": Setting(),
    "S2": Setting(precision=0.25),
    "S3": Setting(precision=0.8),
    "S4": Setting(budget=300),
    "S5": Setting(budget=1500),
    "S6": Setting(scale=0.5),
    "S7": Setting(mode="conflict"),
    "N": Setting(mode="null"),
    # Further ones, run only where they are named.
    "X1": Setting(mode="conflict", budget=1500),
    "X2": Setting(mode="none"),
    "X3": Setting(reward="rubric4"),
    "X4": Setting(reward="none"),
}
SETTINGS = ("S1", "S2", "S3", "S4", "S5", "S6", "S7")
NULL = "N"


@dataclass(frozen=True)
class Task:
    type: int
    difficulty: float


class RuleWorld:
    def __init__(self, seed: int, setting: Setting | None = None) -> None:
        self.setting = setting or Setting()
        if self.setting.mode not in ("none", "interactions", "conflict", "null"):
            raise ValueError(f"mode: {self.setting.mode!r} is unknown")
        names = list(RULES)
        stream("names", seed).shuffle(names)
        self.good, self.noop = names[:GOOD], names[GOOD : GOOD + NOOP]
        self.harmful = names[GOOD + NOOP :]
        self.weight: dict[str, float] = {}
        self.scope: dict[str, frozenset[int]] = {}
        self._draw_rules(stream("rules", seed))
        self.needs: dict[str, str] = {}
        self.redundant_with: dict[str, str] = {}
        self.conflicts_with: dict[str, str] = {}
        self._draw_interactions(stream("interactions", seed))
        tasks = stream("tasks", seed)
        self.train = _tasks(tasks, TRAIN)
        self.select = _tasks(tasks, SELECT)
        self._test = _Exact(_tasks(tasks, TEST))
        self._selection = _Exact(self.select)
        self._rewards, self._lessons = stream("rewards", seed), stream("lessons", seed)
        self.seed_document = "Solve the task that you are given."
        self._shifts: dict[str, tuple[frozenset[str], tuple[float, ...]]] = {}

    # --- what an engine may call

    def rollout(self, task: Task, document: str) -> Outcome:
        rules, shift = self._of(document)
        reward = self._reward(_sigmoid(task.difficulty + shift[task.type]))
        lesson = ""
        if self._lessons.random() < 1.0 - reward:
            lesson = self._lesson(task, rules)
        return Outcome(reward, lesson)

    # --- what only the benchmark calls

    def truth(self, document: str) -> float:
        return self._test.mean(self._of(document)[1])

    def select_truth(self, document: str) -> float:
        return self._selection.mean(self._of(document)[1])

    def oracle(self) -> float:
        """The reference gain: of all good rules; under conflict of the best choice from each
        pair. Leaving a redundant rule out would save a little more.
        """
        seed = self.truth(self.seed_document)
        if self.setting.mode == "null":
            return 0.0
        if self.setting.mode != "conflict":
            return self.truth(" ".join(self.good)) - seed
        pairs = sorted({tuple(sorted(pair)) for pair in self.conflicts_with.items()})
        return max(self.truth(" ".join(choice)) for choice in itertools.product(*pairs)) - seed

    # --- drawing the world

    def _draw_rules(self, draw: random.Random) -> None:
        for name in self.good:
            self.weight[name] = self.setting.scale * draw.uniform(0.4, 1.6)
            self.scope[name] = frozenset(draw.sample(range(TYPES), draw.randint(1, 3)))
        for name in self.noop:
            self.weight[name] = 0.0
        for name in self.harmful:
            self.weight[name] = -self.setting.scale * draw.uniform(0.3, 1.0)
        for name in (*self.noop, *self.harmful):
            self.scope[name] = frozenset(range(TYPES))
        if self.setting.mode == "null":
            self.weight = dict.fromkeys(self.weight, 0.0)

    def _draw_interactions(self, draw: random.Random) -> None:
        order = list(self.good)
        draw.shuffle(order)
        for k in range(6):
            one, other = order[k], order[k + 6]
            if self.setting.mode == "interactions" and k < 3:
                self.needs[one] = other
            elif self.setting.mode == "interactions":
                self.redundant_with[one] = other
                self.scope[one] = self.scope[other]
            elif self.setting.mode == "conflict":
                self.conflicts_with[one], self.conflicts_with[other] = other, one
                self.scope[one] = self.scope[other]

    # --- one document, one rollout

    def _of(self, document: str) -> tuple[frozenset[str], tuple[float, ...]]:
        """The document's rules and what they add to the logit, for each type of task."""
        known = self._shifts.get(document)
        if known is None:
            rules = frozenset(_RULE.findall(document))
            known = self._shifts[document] = rules, self._shift(rules)
        return known

    def _shift(self, rules: frozenset[str]) -> tuple[float, ...]:
        cost = 0.0 if self.setting.mode == "null" else LENGTH_COST * len(rules)
        # Sorted: the order of a set would decide the last bit of the sum.
        parts = [(self.scope[x], self._share(x, rules) * self.weight[x]) for x in sorted(rules)]
        return tuple(
            math.fsum(part for scope, part in parts if kind in scope) - cost
            for kind in range(TYPES)
        )

    def _share(self, rule: str, rules: frozenset[str]) -> float:
        """How much of its weight a rule brings to bear among these."""
        if rule in self.needs and self.needs[rule] not in rules:
            return 0.0
        if self.redundant_with.get(rule) in rules:
            return 0.0
        if self.conflicts_with.get(rule) in rules:
            return -0.5
        return 1.0

    def _reward(self, p: float) -> float:
        if self.setting.reward == "none":
            return p
        n = 4 if self.setting.reward == "rubric4" else 1
        return sum(self._rewards.random() < p for _ in range(n)) / n

    def _lesson(self, task: Task, rules: frozenset[str]) -> str:
        helpful = [x for x in self.good if task.type in self.scope[x] and x not in rules]
        if helpful and self._lessons.random() < self.setting.precision:
            return self._lessons.choice(helpful)
        useless = [x for x in (*self.noop, *self.harmful) if x not in rules]
        # A document that holds every wrong rule can be told a no-op again; it changes nothing.
        return self._lessons.choice(useless or self.noop)


class _Exact:
    """Means over many tasks at once: their difficulties, by type."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._n = len(tasks)
        self._by_type = [
            np.array([task.difficulty for task in tasks if task.type == kind])
            for kind in range(TYPES)
        ]

    def mean(self, shift: Iterable[float]) -> float:
        passed = (
            float(np.sum(1.0 / (1.0 + np.exp(-(difficulty + by)))))
            for difficulty, by in zip(self._by_type, shift, strict=True)
        )
        return math.fsum(passed) / self._n


def stream(label: str, seed: int) -> random.Random:
    """A generator for one purpose. The label is mixed in: plain numbers correlate streams."""
    digest = hashlib.sha256(f"ruleworld/{label}/{seed}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _tasks(draw: random.Random, n: int) -> tuple[Task, ...]:
    return tuple(Task(draw.randrange(TYPES), draw.gauss(-0.9, 0.9)) for _ in range(n))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
