"""What a reading of the sealed test says of a candidate and its base.

The gain is paired on task and seed; its interval is the bootstrap over tasks. `better` and
`regressed` need an interval on one side of zero, anything else is `inconclusive`. Where all tasks
changed alike the interval has no width, and the exact sign test has to agree. Below the coverage
floor there is no verdict but `infrastructure`.
"""

from __future__ import annotations

from typing import Any

from optimizer.statistics import Pair, PairedResult, compare
from orchestrator.runs import queries
from orchestrator.runs.services import COVERAGE_FLOOR

LEVEL = 0.05
METHOD = "paired_bootstrap"


def compared(*, base_run: int, base_harness: int, run: int, harness: int) -> PairedResult:
    rows = queries.score_pairs(base_run, base_harness, run, harness)
    return compare(Pair(task, before, after) for task, _, before, after in rows)


def paired_verdict(comparison: PairedResult | None) -> str:
    """better, regressed, inconclusive or infrastructure."""
    if comparison is None or comparison.low is None or comparison.high is None:
        return "infrastructure"
    if comparison.coverage < COVERAGE_FLOOR:
        return "infrastructure"
    if comparison.is_degenerate and comparison.sign_test.two_sided >= LEVEL:
        return "inconclusive"
    if comparison.low > 0:
        return "better"
    return "regressed" if comparison.high < 0 else "inconclusive"


def details_of(comparison: PairedResult) -> dict[str, Any]:
    return {
        "units": comparison.units,
        "standard_error": comparison.standard_error,
        "sign_test": _vars(comparison.sign_test),
        "sign_flip": _vars(comparison.sign_flip),
        "mcnemar": _vars(comparison.mcnemar),
    }


def _vars(test: object | None) -> dict[str, Any] | None:
    return None if test is None else dict(vars(test))


def points(share: float) -> str:
    """Percentage points with a sign; the minus is the typographic one, as on the pages."""
    return f"{100 * share:+.0f}".replace("-", "−")
