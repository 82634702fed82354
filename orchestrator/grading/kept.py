"""Which verdicts of a past rollout still hold under another rubric. Pure.

What a criterion says of a rollout hangs on its kind, parameters, scope, applicability and sign, not
on its weight, threshold, name or place. Where these are the same, the stored verdict is the one
that grading again would give, and costs nothing. A verdict that was never reached, because a gate
before it was shut, is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rubrics.types import Criterion, RubricSpec, State, Verdict

NOT_REACHED = "not graded: "
"""How `rubrics.grade` begins the reason of what stands behind a gate or in a stopped sequence."""


def deciding(criterion: Criterion) -> str:
    """Equal for two criteria that say the same of every rollout."""
    return json.dumps(
        [
            criterion.id,
            criterion.kind,
            dict(criterion.params),
            criterion.scope,
            asdict(criterion.applies),
            criterion.negative,
        ],
        sort_keys=True,
        default=list,
    )


def unchanged(before: RubricSpec, after: RubricSpec) -> frozenset[str]:
    """Ids of the criteria of `after` whose verdicts under `before` still hold."""
    old = {deciding(criterion) for criterion in before.criteria}
    return frozenset(c.id for c in after.criteria if deciding(c) in old)


def held(
    verdicts: Iterable[Verdict], ids: frozenset[str], *, with_errors: bool
) -> dict[str, Verdict]:
    """Those of `verdicts` that can be taken as they are."""
    return {
        verdict.criterion: verdict
        for verdict in verdicts
        if verdict.criterion in ids
        and verdict.state is not State.PENDING
        and (with_errors or verdict.state is not State.ERRORED)
        and not (verdict.state is State.NOT_APPLICABLE and verdict.reason.startswith(NOT_REACHED))
    }


def verdict_of(stored: Mapping[str, Any]) -> Verdict:
    """From its fields in a row or in JSON."""
    return Verdict(
        criterion=stored["criterion"],
        state=State(stored["state"]),
        value=stored["value"],
        reason=stored["reason"],
        cites=tuple(stored["cites"] or ()),
        detail=stored.get("detail") or {},
    )


def as_json(verdict: Verdict, name: str) -> dict[str, Any]:
    return {
        "criterion": verdict.criterion,
        "name": name,
        "state": verdict.state.value,
        "value": verdict.value,
        "reason": verdict.reason,
        "cites": list(verdict.cites),
        "detail": dict(verdict.detail),
    }
