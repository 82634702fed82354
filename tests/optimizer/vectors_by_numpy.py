"""Files of vectors in the published format, from a seed, computed with numpy and scipy.

A second implementation: floats and transforms where the product counts exactly, other formulas
where there are several. It shares no code with `optimizer.statistics`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

GRID = np.array([0.1, 0.2, 0.35, 0.5, 0.7])
SEED = 20240117
RESAMPLES = 10_000
Json = dict[str, Any]


def file_of(seed: int) -> Json:
    rng = np.random.default_rng(seed)
    grid = GRID if rng.random() < 0.5 else np.sort(rng.choice(np.arange(5, 75) / 100, 3, False))
    alphas = [float(rng.choice([0.01, 0.05, 0.1, 0.2])) for _ in range(2)]
    return {
        "format": 1,
        "conventions": {"lambda_grid": [float(bet) for bet in grid]},
        "e_process": [e_process(rng, grid, f"e{i}") for i in range(12)],
        "domain_errors": {"lists": [[0.1, -1.5], ["nan"], [1.0000001], [0, 0, 2]]},
        "alpha_spending": {
            "alpha_total": alphas[0],
            "rows": [spending(j, alphas[0], grid) for j in range(1, 9)],
        },
        "planning_numbers": planning(alphas[1], grid),
        "paired": [paired(rng, f"p{i}") for i in range(8)],
    }


# --- the betting test


def differences(rng: np.random.Generator) -> list[float | None]:
    n = int(rng.integers(0, 80))
    kind = rng.integers(4)
    if kind == 0:
        d = rng.choice([-1, 0, 1], n, p=[0.15, 0.45, 0.4])
    elif kind == 1:
        d = rng.integers(-4, 5, n) / 4
    elif kind == 2:
        d = np.round(np.clip(rng.normal(-0.15, 0.4, n), -1, 1), 3)
    else:
        d = np.zeros(n)
    lost = rng.random(n) < rng.choice([0.0, 0.1, 0.3])
    return [None if gone else float(x) for x, gone in zip(d, lost, strict=True)]


def e_process(rng: np.random.Generator, grid: np.ndarray, name: str) -> Json:
    d = differences(rng)
    alpha = float(rng.choice([0.01, 0.05, 0.2]))
    shift = float(rng.choice([0.0, 0.0, 0.05, 0.1]))
    valid = np.array([x for x in d if x is not None], dtype=float)
    positions = [i for i, x in enumerate(d, start=1) if x is not None]
    plus = np.cumprod(1 + np.outer(valid + shift, grid), axis=0).mean(axis=1)
    minus = np.cumprod(1 - np.outer(valid + shift, grid), axis=0).mean(axis=1)
    crossed = np.flatnonzero((plus * alpha >= 1) | (minus * alpha >= 1))
    first = int(crossed[0]) if len(crossed) else None
    scheduled = positions[first] if first is not None else len(d)
    n_valid = first + 1 if first is not None else len(valid)
    coverage = n_valid / scheduled if scheduled else 1.0
    verdict, reason = "indecisive", "budget"
    if not d:
        reason = "no_data"
    elif coverage < 0.8:
        reason = "coverage"
    elif first is not None:
        reason = "crossed"
        verdict = "improved" if plus[first] * alpha >= 1 else "not_improved"
    return {
        "name": name,
        "claim": "non-inferiority" if shift else "improvement",
        "alpha": alpha,
        "threshold": 1 / alpha,
        "shift": shift,
        "min_coverage": 0.8,
        "d": d,
        "expect": {
            "e_plus": plus.tolist(),
            "e_minus": minus.tolist(),
            "crossing_pair": None if first is None else first + 1,
            "crossing_position": None if first is None else scheduled,
            "valid_pairs_at_end_or_crossing": n_valid,
            "scheduled_at_end_or_crossing": scheduled,
            "coverage": coverage,
            "verdict": verdict,
            "reason": reason,
            "mean_of_all_valid": float(valid.mean()) if len(valid) else None,
        },
    }


def spending(j: int, total: float, grid: np.ndarray) -> Json:
    alpha = total / float(np.square(j)) / (math.pi**2 / 6)
    return {
        "j": j,
        "alpha_j": alpha,
        "threshold": 1 / alpha,
        "fewest_straight_wins": pairs_until(1 + grid, alpha),
    }


def planning(alpha: float, grid: np.ndarray) -> Json:
    return {
        "fewest_straight_wins": {f"alpha_{alpha}": pairs_until(1 + grid, alpha)},
        f"exact_ties_until_non_inferior_alpha_{alpha}": {
            str(margin): pairs_until(1 + grid * margin, alpha) for margin in (0.02, 0.05, 0.2)
        },
    }


def pairs_until(factors: np.ndarray, alpha: float) -> int:
    n = np.arange(1, 1_000)
    evidence = np.exp(np.minimum(np.outer(n, np.log(factors)), 700)).mean(axis=1)
    return int(n[np.argmax(evidence >= 1 / alpha)])


# --- paired comparison


def paired(rng: np.random.Generator, name: str) -> Json:
    n, kind, replicates = int(rng.integers(2, 36)), int(rng.integers(3)), int(rng.choice([1, 1, 2]))
    steps = (1, 4, 20)[kind]
    size = n * replicates
    seed = rng.integers(0, steps + 1, size) / steps
    gain = rng.integers(-steps, steps + 1, size) / steps
    candidate = np.where(rng.random(size) < 0.6, np.clip(seed + gain, 0, 1), seed)
    candidate = np.round(candidate * steps) / steps
    case: Json = {"name": name, "seed": seed.tolist(), "candidate": candidate.tolist()}
    counts = np.round((candidate - seed) * steps).astype(int).reshape(n, replicates)
    units = counts.sum(axis=1)
    step = 1 / (steps * replicates)
    if replicates > 1:
        case["task"] = [f"t{i}" for i in range(n) for _ in range(replicates)]
    sd = float(np.std(units * step, ddof=1))
    wins, losses = int((units > 0).sum()), int((units < 0).sum())
    is_binary = replicates == 1 and set(seed.tolist()) | set(candidate.tolist()) <= {0.0, 1.0}
    case["expect"] = {
        "units": n,
        "mean_difference": float(units.mean() * step),
        "sd_unbiased": sd,
        "standard_error": sd / math.sqrt(n),
        "bootstrap_exact": exact(units, step),
        "bootstrap_seeded": seeded(units, step),
        "sign_test": {
            "wins": wins,
            "losses": losses,
            "ties": n - wins - losses,
            **binomial(wins, losses),
        },
        "sign_flip": flips(units),
        "mcnemar": discordant(seed, candidate) if is_binary else None,
        "degenerate_interval": len(set(units.tolist())) == 1,
        "note_that_nobody_computes": 1,
    }
    return case


def exact(units: np.ndarray, step: float) -> dict[str, list[float]]:
    """By repeated convolution of probabilities."""
    low, n = int(units.min()), len(units)
    one = np.bincount(units - low) / n
    mass = np.ones(1)
    for _ in range(n):
        mass = np.convolve(mass, one)
    cumulative = np.cumsum(mass)
    values = (n * low + np.arange(len(mass))) * step / n

    def at(level: float) -> float:
        return float(values[np.argmax(cumulative >= level * (1 - 1e-12))])

    return {str(p): [at((100 - p) / 200), at((100 + p) / 200)] for p in (90, 95)}


def seeded(units: np.ndarray, step: float) -> dict[str, list[float]]:
    """numpy's legacy generator gives the doubles of Python's if its key is a list of one."""
    state = np.random.RandomState([SEED])
    n = len(units)
    draws = state.random_sample(RESAMPLES * n).reshape(RESAMPLES, n)
    sums = np.sort(units[np.floor(draws * n).astype(int)].sum(axis=1))

    def at(tail: int) -> float:
        return float(sums[-(-tail * RESAMPLES // 200) - 1] * step / n)

    return {str(p): [at(100 - p), at(100 + p)] for p in (90, 95)}


def binomial(wins: int, losses: int) -> dict[str, float]:
    n = wins + losses
    if not n:
        return {"one_sided_improved": 1.0, "two_sided": 1.0}
    return {
        "one_sided_improved": float(stats.binom.sf(wins - 1, n, 0.5)),
        "two_sided": float(stats.binomtest(wins, n, 0.5).pvalue),
    }


def flips(units: np.ndarray) -> dict[str, float]:
    mass = np.ones(1)
    for size in np.abs(units):
        one = np.zeros(2 * size + 1)
        one[0] += 0.5
        one[-1] += 0.5
        mass = np.convolve(mass, one)
    total = int(np.abs(units).sum())
    sums = np.arange(-total, total + 1)
    observed = int(units.sum())
    return {
        "one_sided_improved": float(mass[sums >= observed].sum()),
        "two_sided": float(mass[np.abs(sums) >= abs(observed)].sum()),
    }


def discordant(seed: np.ndarray, candidate: np.ndarray) -> Json:
    gained, lost = int((candidate > seed).sum()), int((candidate < seed).sum())
    both = int(((candidate == 1) & (seed == 1)).sum())
    return {
        "both_pass": both,
        "only_candidate": gained,
        "only_seed": lost,
        "both_fail": len(seed) - both - gained - lost,
        **binomial(gained, lost),
    }
