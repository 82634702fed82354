"""What a form says of the rollouts to grade again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from orchestrator.grading.selecting import BACKTEST_ROLLOUTS, STATES, Selection


def number_in(sent: Mapping[str, Any], name: str) -> int | None:
    text = str(sent.get(name, ""))
    return int(text) if text.isdecimal() and len(text) < 19 else None


def selection_in(sent: QueryDict, rubric_id: int | None = None) -> Selection:
    """`of`: `rubric`, or `run-ID`, or `environment-ID`, or empty for the whole project."""
    of = sent.get("of", "")
    kind, _, digits = of.partition("-")
    id = int(digits) if digits.isdecimal() and len(digits) < 19 else None
    state = sent.get("state", "")
    ticked = tuple(int(t) for t in sent.getlist("rollout") if t.isdecimal() and len(t) < 19)
    return Selection(
        run_id=id if kind == "run" else None,
        environment_id=id if kind == "environment" else None,
        rubric_id=rubric_id if kind == "rubric" else None,
        state=state if state in STATES else "",
        rollout_ids=ticked[:2000],
        without_test="without_test" in sent,
        errored_verdicts="errored_verdicts" in sent,
    )


def limit_in(sent: Mapping[str, Any]) -> int:
    return number_in(sent, "n") or BACKTEST_ROLLOUTS
