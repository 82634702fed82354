"""Agreement beyond chance: Cohen's kappa for two raters, Krippendorff's alpha for any number.

Cohen, A coefficient of agreement for nominal scales, 1960; Weighted kappa, 1968. Krippendorff,
Computing Krippendorff's alpha-reliability, 2011. Both are 1 for perfect agreement, 0 for what
chance gives, and negative below it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import product
from typing import Literal

Weights = Literal["nominal", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval", "ratio"]


def cohen_kappa(
    pairs: Sequence[tuple[Hashable, Hashable]], weights: Weights = "nominal"
) -> float | None:
    """Kappa of pairs (rater a, rater b). None if chance alone would agree always, or no pairs.

    `linear` and `quadratic` weigh a disagreement by the distance of the labels' places in their
    sorted order; labels must be comparable then.
    """
    if not pairs:
        return None
    labels: list[Hashable] = list(dict.fromkeys(label for pair in pairs for label in pair))
    if weights != "nominal":
        labels = sorted(labels)  # type: ignore[type-var] # comparable, as the docstring asks
    place = {label: index for index, label in enumerate(labels)}
    n = len(pairs)
    count_a = Counter(place[a] for a, _ in pairs)
    count_b = Counter(place[b] for _, b in pairs)
    distance = _distance(weights)
    observed = sum(distance(place[a], place[b]) for a, b in pairs) / n
    expected = sum(
        distance(i, j) * count_a[i] * count_b[j] for i, j in product(count_a, count_b)
    ) / (n * n)
    return None if expected == 0 else 1 - observed / expected


def _distance(weights: Weights) -> Callable[[int, int], float]:
    if weights == "nominal":
        return lambda i, j: float(i != j)
    if weights == "linear":
        return lambda i, j: float(abs(i - j))
    return lambda i, j: float((i - j) ** 2)


def krippendorff_alpha(units: Sequence[Sequence[float]], level: Level = "nominal") -> float | None:
    """Alpha over units (rollouts), each with the values that its raters gave it, any number.

    Units with fewer than two values say nothing of agreement and are left out. None if no unit is
    left or all values are the same.
    """
    usable = [unit for unit in units if len(unit) > 1]
    coincidences: dict[tuple[float, float], float] = defaultdict(float)
    for unit in usable:
        share = 1 / (len(unit) - 1)
        for i, a in enumerate(unit):
            for j, b in enumerate(unit):
                if i != j:
                    coincidences[a, b] += share
    totals: dict[float, float] = defaultdict(float)
    for (a, _), count in coincidences.items():
        totals[a] += count
    n = sum(totals.values())
    if len(totals) < 2:
        return None
    delta = _delta(level, totals)
    observed = sum(count * delta(a, b) for (a, b), count in coincidences.items()) / n
    expected = sum(totals[a] * totals[b] * delta(a, b) for a, b in product(totals, totals)) / (
        n * (n - 1)
    )
    return 1 - observed / expected


def _delta(level: Level, totals: Mapping[float, float]) -> Callable[[float, float], float]:
    """The squared difference of two values on a scale of that level."""
    if level == "nominal":
        return lambda a, b: float(a != b)
    if level == "interval":
        return lambda a, b: (a - b) ** 2
    if level == "ratio":
        return lambda a, b: ((a - b) / (a + b)) ** 2 if a + b else 0.0
    below: dict[float, float] = {}
    passed = 0.0
    for value in sorted(totals):
        below[value] = passed + totals[value] / 2
        passed += totals[value]
    return lambda a, b: (below[a] - below[b]) ** 2
