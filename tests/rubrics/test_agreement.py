"""Agreement statistics against the libraries that people trust, on random data."""

from __future__ import annotations

import random
import warnings

import krippendorff
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from rubrics.agreement.binary import Confusion, corrected_pass_rate, mcnemar_exact, wilson
from rubrics.agreement.bootstrap import bootstrap_interval, quantile
from rubrics.agreement.chance import Level, Weights, cohen_kappa, krippendorff_alpha

SEEDS = range(40)


def labels(draw: random.Random, n: int, values: int) -> list[int]:
    return [draw.randrange(values) for _ in range(n)]


@pytest.mark.parametrize("weights", ["nominal", "linear", "quadratic"])
def test_kappa_is_that_of_scikit_learn(weights: Weights) -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        n, values = draw.randint(2, 60), draw.randint(2, 5)
        a, b = labels(draw, n, values), labels(draw, n, values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = cohen_kappa_score(a, b, weights=None if weights == "nominal" else weights)
        ours = cohen_kappa(list(zip(a, b, strict=True)), weights)
        if ours is None:
            assert np.isnan(theirs)
        else:
            assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval", "ratio"])
def test_alpha_is_that_of_krippendorff(level: Level) -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        n_units, n_raters, values = draw.randint(2, 30), draw.randint(2, 4), draw.randint(2, 5)
        table = [
            [float(draw.randrange(values)) if draw.random() < 0.8 else None for _ in range(n_units)]
            for _ in range(n_raters)
        ]
        units = [
            [value for row in table if (value := row[unit]) is not None] for unit in range(n_units)
        ]
        ours = krippendorff_alpha(units, level)
        data = np.array([[np.nan if v is None else v for v in row] for row in table])
        try:
            theirs = krippendorff.alpha(reliability_data=data, level_of_measurement=level)
        except ValueError:  # nothing to compare, or one value only
            assert ours is None
            continue
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_counts_rates_and_intervals_are_those_of_the_libraries() -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        n = draw.randint(2, 80)
        people, judge = labels(draw, n, 2), labels(draw, n, 2)
        ours = Confusion.of((bool(a), bool(b)) for a, b in zip(people, judge, strict=True))
        (tn, fp), (fn, tp) = confusion_matrix(people, judge, labels=[0, 1])
        assert (ours.true_positive, ours.false_negative) == (tp, fn)
        assert (ours.false_positive, ours.true_negative) == (fp, tn)
        if tp + fn:
            low, high = proportion_confint(tp, tp + fn, method="wilson")
            rate = ours.true_positive_rate
            assert rate.value == pytest.approx(tp / (tp + fn), abs=1e-12)
            assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-9)
        exact = mcnemar([[tp, fn], [fp, tn]], exact=True).pvalue
        assert mcnemar_exact(int(fn), int(fp)) == pytest.approx(exact, abs=1e-9)


def test_what_cannot_be_known_is_none() -> None:
    assert cohen_kappa([]) is None
    assert cohen_kappa([(1, 1), (1, 1)]) is None
    assert krippendorff_alpha([[1.0]]) is None
    assert krippendorff_alpha([[1.0, 1.0], [1.0, 1.0]]) is None
    assert wilson(0, 0).value is None
    assert corrected_pass_rate(0.5, Confusion(true_positive=3)) is None
    # No better than a coin.
    assert corrected_pass_rate(0.5, Confusion(1, 1, 1, 1)) is None
    assert bootstrap_interval([1.0], lambda items: items[0]) is None
    assert bootstrap_interval([1.0, 2.0], lambda items: None) is None


def test_the_corrected_rate_undoes_what_a_judge_of_known_errors_does() -> None:
    # People pass 0.4; the judge passes 90 % of those and 20 % of the others.
    confusion = Confusion(90, 10, 20, 80)
    assert corrected_pass_rate(0.4 * 0.9 + 0.6 * 0.2, confusion) == pytest.approx(0.4)
    assert corrected_pass_rate(0.05, confusion) == 0.0


def test_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    def mean(items: object) -> float:
        return float(np.mean(items))  # type: ignore[call-overload]

    covered = 0
    for seed in range(100):
        draw = random.Random(seed)
        items = [draw.gauss(0.0, 1.0) for _ in range(40)]
        interval = bootstrap_interval(items, mean, seed=seed, resamples=300)
        assert interval is not None
        covered += interval.low <= 0.0 <= interval.high
    assert 86 <= covered <= 100
    assert quantile([1.0, 2.0, 4.0], 0.75) == pytest.approx(np.quantile([1.0, 2.0, 4.0], 0.75))
