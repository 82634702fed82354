from __future__ import annotations

from optimizer.forecast import PerRollout, Range, forecast
from tests.optimizer.build import put
from tests.optimizer.playing import plan, play
from tests.optimizer.worlds import NullWorld, additive_edits, tasks


def test_the_smallest_gain_is_said_before_the_run() -> None:
    found = forecast(plan(select=tasks("select", 80), certify_pairs=160), base_rate=0.4)
    assert found.smallest_gain is not None
    assert 0.1 < found.smallest_gain < 0.25
    assert found.sentence.startswith("With 80 tasks × 2 ")
    assert "±" in found.sentence


def test_more_pairs_see_smaller_gains() -> None:
    few, many = (forecast(plan(certify_pairs=n), base_rate=0.5).smallest_gain for n in (60, 240))
    assert few is not None
    assert many is not None
    assert many < few


def test_too_few_pairs_are_told_and_how_to_mend_it() -> None:
    found = forecast(plan(certify_pairs=4))
    assert found.smallest_gain is None
    assert "more pairs" in found.sentence


def test_costs_are_ranges_and_the_search_stays_within() -> None:
    subject = plan(search_rollouts=80, certify_pairs=24)
    found = forecast(
        subject,
        per_rollout=PerRollout(usd=Range(0.01, 0.02, 0.04), seconds=Range(1, 2, 4)),
        concurrency=4,
        test_rollouts=10,
    )
    asked = len(play(subject, NullWorld(), additive_edits(2)).asked) + 10
    assert found.rollouts[0] <= asked <= found.rollouts[1]
    assert found.usd is not None
    assert found.usd.low < found.usd.mean < found.usd.high
    assert found.seconds is not None
    assert found.seconds.high == 4 * found.rollouts[1] / 4
    assert found.tokens is None


def test_models_to_choose_among_are_counted() -> None:
    models = (put("model", "small"), put("model", "tiny"))
    dearer = forecast(plan(models=models, model_rollouts=30, model_pairs=50))
    assert dearer.rollouts[1] == forecast(plan()).rollouts[1] + 130
