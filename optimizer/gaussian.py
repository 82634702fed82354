"""A small Bayesian linear model with a random effect per group, in plain Python.

    y_r = x_r·β + u_g(r) + ε_r        β ~ N(0, diag(v))    u ~ N(0, τ²)    ε ~ N(0, σ²)

The random effects are integrated out exactly (they enter the precision as a block of diagonals), so
only the columns of β are ever inverted: some tens, whatever the number of groups. Rows are sparse:
`x_r` is given as the indices of the columns that are 1.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

Matrix = list[list[float]]


@dataclass(frozen=True)
class Row:
    columns: tuple[int, ...]
    """Columns that are 1."""
    group: Hashable
    y: float


@dataclass(frozen=True)
class Posterior:
    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    lower: tuple[tuple[float, ...], ...]
    """Cholesky factor of the precision."""

    def sum_of(self, columns: Sequence[int]) -> tuple[float, float]:
        """Mean and standard deviation of the sum of some columns."""
        mean = math.fsum(self.mean[i] for i in columns)
        variance = math.fsum(self.covariance[i][j] for i in columns for j in columns)
        return mean, math.sqrt(max(variance, 0.0))

    def draw(self, random: Random) -> list[float]:
        """One draw of β from the posterior."""
        n = len(self.mean)
        z = [random.gauss(0.0, 1.0) for _ in range(n)]
        # Precision = L·Lᵀ, so L⁻ᵀ·z has the posterior's covariance.
        for i in range(n - 1, -1, -1):
            tail = math.fsum(self.lower[k][i] * z[k] for k in range(i + 1, n))
            z[i] = (z[i] - tail) / self.lower[i][i]
        return [m + x for m, x in zip(self.mean, z, strict=True)]


def fit(
    rows: Iterable[Row], prior_variance: Sequence[float], *, group_variance: float, noise: float
) -> Posterior:
    """The posterior of β; without rows it is the prior.

    `group_variance` and `noise` are variances.
    """
    n = len(prior_variance)
    precision: Matrix = [[0.0] * n for _ in range(n)]
    for i, variance in enumerate(prior_variance):
        precision[i][i] = 1.0 / variance
    target = [0.0] * n
    groups: dict[Hashable, tuple[list[float], list[float]]] = {}
    for row in rows:
        sums, totals = groups.setdefault(row.group, ([0.0] * n, [0.0, 0.0]))
        for i in row.columns:
            line = precision[i]
            for j in row.columns:
                line[j] += 1.0 / noise
            target[i] += row.y / noise
            sums[i] += 1.0 / noise
        totals[0] += 1.0
        totals[1] += row.y / noise
    for sums, (count, total) in groups.values():
        weight = 1.0 / (1.0 / group_variance + count / noise)
        active = [i for i, value in enumerate(sums) if value]
        for i in active:
            for j in active:
                precision[i][j] -= weight * sums[i] * sums[j]
            target[i] -= weight * sums[i] * total
    lower = _cholesky(precision)
    inverse = _inverse(lower)
    mean = [math.fsum(a * b for a, b in zip(line, target, strict=True)) for line in inverse]
    return Posterior(tuple(mean), tuple(map(tuple, inverse)), tuple(map(tuple, lower)))


def _cholesky(matrix: Matrix) -> Matrix:
    n = len(matrix)
    lower: Matrix = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = math.sqrt(rest) if i == j else rest / lower[j][j]
    return lower


def _inverse(lower: Matrix) -> Matrix:
    """Inverse of L·Lᵀ."""
    n = len(lower)
    half: Matrix = [[0.0] * n for _ in range(n)]  # L⁻¹
    for column in range(n):
        for i in range(column, n):
            rest = float(i == column) - sum(lower[i][k] * half[k][column] for k in range(column, i))
            half[i][column] = rest / lower[i][i]
    return [
        [sum(half[k][i] * half[k][j] for k in range(max(i, j), n)) for j in range(n)]
        for i in range(n)
    ]
