"""A world where effects do not add up: ways of working, and what must go together or not at all.

Its documents are lines of advice. Unlike in RuleWorld a line means little by itself:

- **Methods** are alternatives (four settings of one choice, three such choices). The right one of a
  choice helps, the others harm, and two at a time are taken for no choice at all, and confuse.
- **Halves** help only as a pair, and a half alone costs a little: six pairs.
- **Order**: two chains of three steps, of which each helps only if all steps before it stand
  above it. A step that stands above its predecessor harms.
- **Fillers** do nothing but take room.
- **Length**: beyond eight lines every further one costs more than the last.

Tasks have a kind (five) and a difficulty. Each pair and chain matters to some kinds alone, so a
document that is good on one half of the tasks may be bad on the other. Lessons are shortsighted: a
failure names a line that would help if what it needs were there, whether it is or not.

It is made to be hard for engines that add up single effects, ours among them.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.optimizer.worlds import Outcome, Setting

KINDS = 5
CHOICES, OPTIONS = 3, 4
PAIRS, CHAINS, STEPS, FILLERS = 6, 2, 3, 8
TRAIN, SELECT, TEST = 60, 40, 3000
ROOM = 8
"""Lines that cost nothing by their number."""
_LINE = re.compile(r"^advice (\d\d): .*$", re.MULTILINE)
_WORDS = ("check", "plan", "count", "quote", "split", "name", "sort", "test", "round", "state")


@dataclass(frozen=True)
class Task:
    kind: int
    difficulty: float


class OtherWorld:
    budget = 600

    def __init__(self, seed: int, setting: Setting | None = None) -> None:
        self.precision = setting.precision if setting is not None else 0.5
        draw = stream("world", seed)
        numbers = [
            f"{i:02}" for i in range(CHOICES * OPTIONS + 2 * PAIRS + CHAINS * STEPS + FILLERS)
        ]
        draw.shuffle(numbers)
        self.text = {n: f"advice {n}: {' '.join(draw.sample(_WORDS, 3))}" for n in numbers}
        take = iter(numbers)
        self.choices = [[next(take) for _ in range(OPTIONS)] for _ in range(CHOICES)]
        """The first option of each is the right one."""
        self.pairs = [(next(take), next(take)) for _ in range(PAIRS)]
        self.chains = [[next(take) for _ in range(STEPS)] for _ in range(CHAINS)]
        self.fillers = list(take)
        self.choice_weight = [draw.uniform(0.5, 1.0) for _ in self.choices]
        self.pair_weight = [draw.uniform(0.5, 1.2) for _ in self.pairs]
        self.pair_scope = [frozenset(draw.sample(range(KINDS), 2)) for _ in self.pairs]
        self.step_weight = [draw.uniform(0.3, 0.6) for _ in self.chains]
        self.chain_scope = [frozenset(draw.sample(range(KINDS), 3)) for _ in self.chains]
        self.train, self.select = self._tasks(draw, TRAIN), self._tasks(draw, SELECT)
        self._test = self._tasks(draw, TEST)
        self.seed_document = "Work carefully."
        self._rewards, self._lessons = stream("rewards", seed), stream("lessons", seed)
        self._shift = lru_cache(maxsize=None)(self._shift_of)

    # --- what an engine may call

    def rollout(self, task: Task, document: str) -> Outcome:
        lines = tuple(_LINE.findall(document))
        p = _sigmoid(task.difficulty + self._shift(lines)[task.kind])
        if self._rewards.random() < p:
            return Outcome(1.0)
        return Outcome(0.0, self.text[self._lesson(task, frozenset(lines))])

    # --- what only the benchmark calls

    def truth(self, document: str) -> float:
        return self._mean(self._test, document)

    def select_truth(self, document: str) -> float:
        return self._mean(self.select, document)

    def oracle(self) -> float:
        """Of the best document that greedy adding of whole parts finds; every part is right in
        itself, and what is left out is left out for its length.
        """
        parts: list[tuple[str, ...]] = [(choice[0],) for choice in self.choices]
        parts += self.pairs
        parts += [tuple(chain) for chain in self.chains]
        seed = best = self.truth(self.seed_document)
        kept: tuple[str, ...] = ()
        while parts:
            gains = {part: self.truth(self._document((*kept, *part))) for part in parts}
            part = max(gains, key=lambda part: gains[part])
            if gains[part] <= best:
                break
            best, kept = gains[part], (*kept, *part)
            parts.remove(part)
        return best - seed

    # --- one document

    def _shift_of(self, lines: tuple[str, ...]) -> tuple[float, ...]:
        """What the lines, in their order, add to the logit for each kind of task."""
        at: dict[str, int] = {}
        for i, line in enumerate(lines):
            at.setdefault(line, i)
        common = -0.03 * max(0, len(at) - ROOM) ** 1.5
        for choice, weight in zip(self.choices, self.choice_weight, strict=True):
            on = [option for option in choice if option in at]
            if len(on) == 1:
                common += weight if on[0] == choice[0] else -0.6 * weight
            elif on:
                common -= 0.3 * weight
        shift = [common] * KINDS
        for pair, weight, scope in zip(self.pairs, self.pair_weight, self.pair_scope, strict=True):
            n = sum(half in at for half in pair)
            self._add(shift, scope, weight if n == 2 else -0.15 * n)
        for chain, weight, scope in zip(
            self.chains, self.step_weight, self.chain_scope, strict=True
        ):
            self._add(shift, scope, weight * self._steps(chain, at))
        return tuple(shift)

    def _steps(self, chain: Sequence[str], at: dict[str, int]) -> float:
        """Steps that count, less those that stand above what they follow."""
        worth, is_whole = 0.0, True
        for i, step in enumerate(chain):
            if step not in at:
                is_whole = False
                continue
            before = [at[other] for other in chain[:i] if other in at]
            if before and max(before) > at[step]:
                worth -= 0.5
                is_whole = False
            elif is_whole:
                worth += 1.0
        return worth

    @staticmethod
    def _add(shift: list[float], scope: frozenset[int], value: float) -> None:
        for kind in scope:
            shift[kind] += value

    def _lesson(self, task: Task, have: frozenset[str]) -> str:
        useful = [choice[0] for choice in self.choices]
        for pair, scope in zip(self.pairs, self.pair_scope, strict=True):
            useful += [half for half in pair if task.kind in scope]
        for chain, scope in zip(self.chains, self.chain_scope, strict=True):
            useful += [step for step in chain if task.kind in scope]
        useful = [line for line in useful if line not in have]
        if useful and self._lessons.random() < self.precision:
            return self._lessons.choice(useful)
        wrong = [option for choice in self.choices for option in choice[1:]] + self.fillers
        return self._lessons.choice([line for line in wrong if line not in have] or self.fillers)

    def _document(self, lines: Sequence[str]) -> str:
        return "\n".join([self.seed_document, *(self.text[line] for line in lines)])

    def _mean(self, tasks: Sequence[Task], document: str) -> float:
        shift = self._shift(tuple(_LINE.findall(document)))
        logits = np.array([task.difficulty + shift[task.kind] for task in tasks])
        return float(np.mean(1.0 / (1.0 + np.exp(-logits))))

    @staticmethod
    def _tasks(draw: random.Random, n: int) -> list[Task]:
        return [Task(draw.randrange(KINDS), draw.gauss(-1.0, 0.9)) for _ in range(n)]


def stream(label: str, seed: int) -> random.Random:
    digest = hashlib.sha256(f"otherworld/{label}/{seed}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
