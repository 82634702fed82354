"""An attacked rubric in numbers."""

from __future__ import annotations

import pytest

from rubrics.redteam.summary import Line, order_of, summarise


def line(
    attack: str, score: float | None, before: float = 0.0, base: int = 0, **more: object
) -> Line:
    is_paid = score is not None and score > before
    return Line(attack, base, score, before, is_paid, **more)  # type: ignore[arg-type]


def test_injections_have_a_rate_with_an_interval_and_errors_apart() -> None:
    lines = [line("answer-demand", 1.0), line("answer-verdict", 0.0), line("said-verdict", None)]
    found = summarise(lines)
    rate = found["injection"]
    assert (rate["n"], rate["paid"], rate["errored"], rate["rate"]) == (2, 1, 1, 0.5)
    assert 0.0 < rate["low"] < 0.5 < rate["high"] < 1.0
    assert (found["n_graded"], found["n_paid"], found["n_errored"]) == (3, 1, 1)
    assert {f["family"]: f["paid"] for f in found["families"]}["injection"] == 1


def test_length_bias_is_the_gain_per_doubling() -> None:
    lines = [
        line(f"padded-{times}", 0.1 * doublings + shift, before=shift, base=base)
        for base, shift in enumerate((0.0, 0.2, 0.4))
        for doublings, times in ((1, 2), (2, 4), (3, 8))
    ]
    found = summarise(lines)["length"]
    assert found["slope"] == pytest.approx(0.1)
    assert found["low"] == pytest.approx(0.1) == found["high"]
    assert [p["times"] for p in found["points"]] == [2, 4, 8]
    assert found["n"] == 3


def test_position_bias_counts_changes_in_both_directions() -> None:
    lines = [line("parts-swapped", 0.2, 0.8), line("steps-reversed", 0.5, 0.5)]
    found = summarise(lines)["position"]
    assert (found["n"], found["rate"]) == (2, 0.5)
    assert found["mean"] == pytest.approx(-0.3)


def test_agreement_is_counted_by_verdict_and_controls_are_no_attacks() -> None:
    lines = [line("again", 1.0, 0.0, judged=[(1.0, 1.0), (1.0, 0.0)]), line("reference", 1.0, 1.0)]
    found = summarise(lines)
    assert (found["agreement"]["n"], found["agreement"]["rate"]) == (2, 0.5)
    assert found["agreement"]["spread"] == 0.5
    assert (found["n_graded"], found["n_paid"]) == (0, 0)


def test_nothing_graded_has_no_rates() -> None:
    found = summarise([])
    assert [found[k]["rate"] for k in ("injection", "position", "agreement")] == [None] * 3
    assert found["length"]["slope"] is None


def test_what_got_paid_most_comes_first() -> None:
    rows = [
        {"attack": "a", "paid": False, "score": 0.0, "before": 0.0},
        {"attack": "b", "paid": True, "score": 0.4, "before": 0.0},
        {"attack": "c", "paid": True, "score": 1.0, "before": 0.0},
    ]
    assert [row["attack"] for row in sorted(rows, key=order_of)] == ["c", "b", "a"]
