"""The page on calibration holds."""

from __future__ import annotations

from orchestrator.grading.models import CalibrationBar
from orchestrator.review.alignment import LEAST_DISAGREEMENTS, LEAST_HELD_OUT
from orchestrator.review.calibration import Unused
from rubrics.agreement.bootstrap import RESAMPLES
from rubrics.agreement.drift import WINDOW
from tests.docs.pages import ROOT, python_blocks

PAGE = "docs/how-to/calibrate-a-judge.md"


def test_its_code_runs_as_it_stands() -> None:
    exec(compile(python_blocks(PAGE)["try it"], "example", "exec"), {})  # noqa: S102 - our own document


def test_its_numbers_are_those_of_the_code() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    bar = CalibrationBar()
    assert f"κ {bar.kappa:g} from {bar.min_labels} labels on" in text
    assert f"({RESAMPLES:,} times)" in text
    assert f"windows of {WINDOW}" in text
    assert (LEAST_DISAGREEMENTS, LEAST_HELD_OUT) == (2, 10)
    assert "two disagreements to learn from and ten labels to test on" in text
    # One line of its table for each reason, where two reasons share one twice.
    table = text.split("| why | what helps |")[1].split("\n\n")[0]
    assert len(table.strip().splitlines()) - 1 == len(Unused) - 2
