from __future__ import annotations

import json
import math

import pytest

from benchmarks.__main__ import main, names
from benchmarks.figures import Figure, percentile


def test_a_figure_is_one_json_line() -> None:
    assert json.loads(Figure("x_ms", 3.0, 5.0).line()) == {
        "name": "x_ms",
        "value": 3.0,
        "bar": 5.0,
        "ok": True,
    }


@pytest.mark.parametrize(
    ("value", "is_floor", "ok"),
    [
        (5, False, True),
        (6, False, False),
        (5, True, True),
        (4, True, False),
        (math.nan, True, False),
    ],
)
def test_a_bar_is_a_ceiling_or_a_floor(value: float, is_floor: bool, ok: bool) -> None:
    assert Figure("x", value, 5, is_floor=is_floor).ok is ok


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.95) == 2.0
    assert math.isnan(percentile([], 0.95))


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nope"]) == 2
    assert "nope" in capsys.readouterr().out
    assert {"live", "startup"} <= set(names())
