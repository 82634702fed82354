"""A world of staircases: a line helps only if all lines before it in its chain are there.

Three chains of five steps each; the first step of a chain helps little, each further one more than
the last, and only in documents that hold the steps below it. A lesson names the next step of a
chain, never a later one, so it depends on the document that failed: an engine that watches the seed
alone learns three lines. Wrong lessons name lines that are harmless alone; any two of them harm.

It favours engines that climb, step by step, from what they have. Tasks differ in difficulty only.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections.abc import Sequence

import numpy as np

from benchmarks.optimizer.worlds import Outcome, Setting

CHAINS, STEPS, WRONG = 3, 5, 10
TRAIN, SELECT, TEST = 60, 40, 3000
FIRST, GROWTH = 0.15, 0.1
"""Of the logit: what the first step of a chain is worth, and each further one more."""
CLASH = 0.2
"""What each wrong line beyond the first takes."""
_LINE = re.compile(r"^rule ([a-z]{6})$", re.MULTILINE)


class Staircase:
    budget = 600

    def __init__(self, seed: int, setting: Setting | None = None) -> None:
        self.precision = setting.precision if setting is not None else 0.5
        draw = stream("world", seed)
        names: set[str] = set()
        while len(names) < CHAINS * STEPS + WRONG:
            names.add("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)))
        shuffled = sorted(names)
        draw.shuffle(shuffled)
        take = iter(shuffled)
        self.chains = [[next(take) for _ in range(STEPS)] for _ in range(CHAINS)]
        self.wrong = list(take)
        self.strength = [draw.uniform(0.7, 1.3) for _ in self.chains]
        self.train = [draw.gauss(-0.9, 0.9) for _ in range(TRAIN)]
        self.select = [draw.gauss(-0.9, 0.9) for _ in range(SELECT)]
        self._test = np.array([draw.gauss(-0.9, 0.9) for _ in range(TEST)])
        self.seed_document = "Work carefully."
        self._rewards, self._lessons = stream("rewards", seed), stream("lessons", seed)

    def rollout(self, task: float, document: str) -> Outcome:
        have = frozenset(_LINE.findall(document))
        if self._rewards.random() < 1.0 / (1.0 + math.exp(-(task + self._shift(have)))):
            return Outcome(1.0)
        following = [chain[n] for chain in self.chains if (n := _height(chain, have)) < STEPS]
        if following and self._lessons.random() < self.precision:
            return Outcome(0.0, f"rule {self._lessons.choice(following)}")
        wrong = [name for name in self.wrong if name not in have] or self.wrong
        return Outcome(0.0, f"rule {self._lessons.choice(wrong)}")

    def truth(self, document: str) -> float:
        return self._mean(self._test, document)

    def select_truth(self, document: str) -> float:
        return self._mean(np.array(self.select), document)

    def oracle(self) -> float:
        every = "\n".join(f"rule {name}" for name in itertools.chain(*self.chains))
        return self.truth(every) - self.truth(self.seed_document)

    def _shift(self, have: frozenset[str]) -> float:
        total = -CLASH * max(0, sum(name in have for name in self.wrong) - 1)
        for chain, strength in zip(self.chains, self.strength, strict=True):
            total += strength * sum(FIRST + GROWTH * i for i in range(_height(chain, have)))
        return total

    def _mean(self, difficulty: np.ndarray, document: str) -> float:
        logits = difficulty + self._shift(frozenset(_LINE.findall(document)))
        return float(np.mean(1.0 / (1.0 + np.exp(-logits))))


def _height(chain: Sequence[str], have: frozenset[str]) -> int:
    """Steps of the chain that are there without a gap."""
    return next((i for i, name in enumerate(chain) if name not in have), len(chain))


def stream(label: str, seed: int) -> random.Random:
    digest = hashlib.sha256(f"staircase/{label}/{seed}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))
