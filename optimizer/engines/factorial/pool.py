"""The edits under test, the columns of the model of a score, and the best bundle under it.

    score = intercept + Σ edits + demonstrations' steps + sizes' steps + pairs of leaders + task

- Edits that exclude each other are one factor, of which at most one level is on.
- Demonstrations share steps for their number ("at least one", "at least two", …). The first one
  often does most of the work whichever it is, and the fourth none.
- Other edits share steps for their number too, at SIZES: a prompt that grows may cost more, or
  less, than the sum of its parts.
- The strongest edits (leaders) have a column for each pair: one may need another, repeat it or
  fight it. Among the others no pair could be told from noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from optimizer.edits import Edit, conflict_groups

INTERCEPT_VARIANCE = 1.0
TASK_VARIANCE = 0.06
EDIT_VARIANCE = 0.12**2
FIRST_STEP_VARIANCE = 0.35**2
"""Of the first demonstration against none; anything from no effect to everything is plausible."""
STEP_VARIANCE = 0.15**2
"""Of each further demonstration."""
SIZES = (2, 3, 4, 5, 6, 8, 10, 14)
SIZE_VARIANCE = 0.06**2
PAIR_VARIANCE = 0.08**2
NOISE_VARIANCE = 0.2

Bundle = tuple[int, ...]
"""Positions of edits in the pool, ascending."""


@dataclass(frozen=True)
class Pool:
    edits: tuple[Edit, ...]
    leaders: tuple[int, ...] = ()
    """Positions, ascending; no demonstrations."""
    max_demonstrations: int = 4

    @cached_property
    def demonstrations(self) -> tuple[int, ...]:
        return tuple(i for i, edit in enumerate(self.edits) if edit.is_demonstration)

    @cached_property
    def others(self) -> tuple[int, ...]:
        return tuple(i for i, edit in enumerate(self.edits) if not edit.is_demonstration)

    @cached_property
    def factors(self) -> tuple[tuple[int, ...], ...]:
        """Alternatives among the other edits; at most one of each is on."""
        groups = conflict_groups([self.edits[i] for i in self.others])
        return tuple(tuple(self.others[i] for i in members) for members in groups)

    @cached_property
    def depth(self) -> int:
        """The largest number of demonstrations in a bundle."""
        return min(self.max_demonstrations, len(self.demonstrations))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for size in SIZES if size <= len(self.factors))

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        factor = self._factor_of
        return tuple((i, j) for i, j in combinations(self.leaders, 2) if factor[i] != factor[j])

    @cached_property
    def _pair_column(self) -> dict[tuple[int, int], int]:
        first = 1 + len(self.edits) + self.depth + len(self.sizes)
        return {pair: first + number for number, pair in enumerate(self.pairs)}

    @cached_property
    def prior_variance(self) -> list[float]:
        steps = [FIRST_STEP_VARIANCE, *[STEP_VARIANCE] * self.depth][: self.depth]
        return [
            INTERCEPT_VARIANCE,
            *[EDIT_VARIANCE] * len(self.edits),
            *steps,
            *[SIZE_VARIANCE] * len(self.sizes),
            *[PAIR_VARIANCE] * len(self.pairs),
        ]

    def step_column(self, number: int) -> int:
        """Column of "at least `number` demonstrations"; number counts from 1."""
        return len(self.edits) + number

    def size_column(self, number: int) -> int:
        """Column of "at least SIZES[number] other edits"."""
        return 1 + len(self.edits) + self.depth + number

    def columns(self, bundle: Iterable[int]) -> tuple[int, ...]:
        """Columns that are 1 for a bundle."""
        on = set(bundle)
        n = sum(self.edits[i].is_demonstration for i in on)
        steps = [self.step_column(k) for k in range(1, min(n, self.depth) + 1)]
        sizes = [self.size_column(k) for k, size in enumerate(self.sizes) if len(on) - n >= size]
        pairs = [column for (i, j), column in self._pair_column.items() if i in on and j in on]
        return (0, *(1 + i for i in sorted(on)), *steps, *sizes, *pairs)

    def effect_columns(self, i: int) -> tuple[int, ...]:
        """Columns whose sum is the effect of an edit alone; of a demonstration, as the first."""
        return (1 + i, self.step_column(1)) if self.edits[i].is_demonstration else (1 + i,)

    # --- the best bundle

    def best(
        self,
        theta: Sequence[float],
        allowed: Iterable[int] | None = None,
        most: int | None = None,
    ) -> Bundle:
        """The bundle with the highest predicted score if the columns' values were `theta`, with at
        most `most` edits besides demonstrations.
        """
        may = set(range(len(self.edits)) if allowed is None else allowed)
        cap = len(self.edits) if most is None else most
        return tuple(sorted([*self._best_others(theta, may, cap), *self._best_demos(theta, may)]))

    def _best_demos(self, theta: Sequence[float], may: set[int]) -> list[int]:
        ranked = sorted((i for i in self.demonstrations if i in may), key=lambda i: -theta[1 + i])
        value, best_value, best_number = 0.0, 0.0, 0
        for number, i in enumerate(ranked[: self.depth], start=1):
            value += theta[1 + i] + theta[self.step_column(number)]
            if value > best_value:
                best_value, best_number = value, number
        return ranked[:best_number]

    def _best_others(self, theta: Sequence[float], may: set[int], most: int) -> list[int]:
        step_at = {size: theta[self.size_column(k)] for k, size in enumerate(self.sizes)}
        free = self._free_levels(theta, may)
        best: list[int] = []
        best_value = 0.0
        for chosen, blocked in self._subsets_of_leaders(may, most):
            value = sum(theta[1 + i] for i in chosen)
            value += sum(theta[self._pair_column[p]] for p in combinations(chosen, 2))
            value += sum(step for size, step in step_at.items() if size <= len(chosen))
            added: list[int] = []
            if value > best_value:
                best, best_value = list(chosen), value
            for gain, i, factor in free:
                if len(chosen) + len(added) >= most:
                    break
                if factor in blocked:
                    continue
                added.append(i)
                value += gain + step_at.get(len(chosen) + len(added), 0.0)
                if value > best_value:
                    best, best_value = [*chosen, *added], value
        return best

    def _subsets_of_leaders(
        self, may: set[int], most: int
    ) -> Iterator[tuple[tuple[int, ...], set[int]]]:
        """Each with the factors that it occupies; no two levels of one factor."""
        leaders = [i for i in self.leaders if i in may]
        for size in range(min(len(leaders), most) + 1):
            for chosen in combinations(leaders, size):
                factors = {self._factor_of[i] for i in chosen}
                if len(factors) == size:
                    yield chosen, factors

    @cached_property
    def _factor_of(self) -> dict[int, int]:
        return {i: number for number, members in enumerate(self.factors) for i in members}

    def _free_levels(self, theta: Sequence[float], may: set[int]) -> list[tuple[float, int, int]]:
        """The best level of each factor that is no leader, with its gain and factor, best first."""
        leaders = set(self.leaders)
        found = []
        for number, members in enumerate(self.factors):
            levels = [(-theta[1 + i], i) for i in members if i in may and i not in leaders]
            if levels:
                cost, i = min(levels)
                found.append((-cost, i, number))
        return sorted(found, key=lambda item: (-item[0], item[1]))
