from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.web.figures import NARROW, WIDE, climb_figure, line_chart, stacked


@dataclass
class FakeRung:
    verdict: str = ""
    state: str = "pending"
    score: float | None = None
    score_low: float | None = None
    score_high: float | None = None
    n_scored: int = 0
    n_errored: int = 0
    progress: float = 0.0


def done(score: float, verdict: str, **more: object) -> FakeRung:
    return FakeRung(verdict=verdict, state="done", score=score, **more)  # type: ignore[arg-type]


def test_a_rung_without_a_score_has_no_point_at_zero() -> None:
    rungs = [
        done(0.5, "reference"),
        FakeRung(state="failed", verdict="infrastructure", n_errored=9),
    ]
    figure = climb_figure(rungs, ["Baseline", "Harness"], WIDE)
    assert not figure.points[1].is_measured
    assert figure.points[1].look == "failed"
    assert figure.points[1].errored == 9
    assert figure.segments == []
    assert "Harness: infrastructure, no score" in figure.summary


def test_only_a_certified_gain_is_a_solid_trail() -> None:
    rungs = [done(0.0, "reference"), done(0.7, "better"), done(0.8, "inconclusive")]
    figure = climb_figure(rungs, ["a", "b", "c"], WIDE)
    assert [segment.look for segment in figure.segments] == ["better", "inconclusive"]


def test_a_running_rung_is_an_open_point_at_the_height_reached() -> None:
    figure = climb_figure([done(0.4, "reference"), FakeRung(state="running")], ["a", "b"], WIDE)
    assert figure.points[1].look == "running"
    assert figure.points[1].y == figure.points[0].y
    assert figure.segments[-1].look == "open"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_points_stay_inside_and_higher_scores_are_higher(scores: list[float]) -> None:
    for frame in (WIDE, NARROW):
        figure = climb_figure(
            [done(score, "better") for score in scores], ["r"] * len(scores), frame
        )
        for point in figure.points:
            assert frame.left <= point.x <= frame.right
            assert frame.top <= point.y <= frame.bottom
        for a, b in zip(figure.points, figure.points[1:], strict=False):
            if scores[a.index] < scores[b.index]:
                assert a.y >= b.y


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=30))
def test_a_value_that_is_not_finite_leaves_a_gap(values: list[float | None]) -> None:
    chart = line_chart(list(range(1, len(values) + 1)), values)
    assert len(chart.dots) + len(chart.gaps) == len(values)
    assert "nan" not in " ".join(chart.paths)


def test_a_gap_parts_the_curve() -> None:
    chart = line_chart([1, 2, 3, 4, 5], [1.0, 1.0, float("nan"), 2.0, 2.0])
    assert len(chart.paths) == 2


@given(st.lists(st.integers(0, 50), max_size=6))
def test_a_stacked_bar_never_exceeds_its_width(amounts: list[int]) -> None:
    bars = stacked([("x", amount) for amount in amounts], sum(amounts) + 3)
    assert sum(bar.width for bar in bars) <= 100.001
