"""Why a verdict is what it is: the criterion's words, the judge's raw replies, printed output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.judging.models import JudgeCall
from orchestrator.judging.queries import calls_by_id
from orchestrator.runs.models import VerdictRecord


@dataclass(frozen=True)
class CallShown:
    """One call of a judge, or why there is none."""

    model: str
    outcome: str
    replies: Sequence[Mapping[str, Any]]
    cost_usd: float
    tokens: int
    failure: str = ""


@dataclass(frozen=True)
class Explanation:
    kind: str
    question: str
    """What the criterion asks, where it asks something."""
    calls: Sequence[CallShown]
    printed: str

    @property
    def has_more(self) -> bool:
        return bool(self.question or self.calls or self.printed)


def explanations(
    project_id: int, spec: Mapping[str, Any], verdicts: Iterable[VerdictRecord]
) -> dict[str, Explanation]:
    """By criterion. `spec`: rubric JSON of the version that decided."""
    listed = list(verdicts)
    criteria = {item.get("id"): item for item in spec.get("criteria", ())}
    calls = calls_by_id(project_id, (c for v in listed for c in _call_ids(v.detail)))
    return {
        verdict.criterion: _explanation(criteria.get(verdict.criterion, {}), verdict.detail, calls)
        for verdict in listed
    }


def _explanation(
    criterion: Mapping[str, Any], detail: Mapping[str, Any], calls: Mapping[int, JudgeCall]
) -> Explanation:
    shown = [_shown(called, calls) for called in _called(detail)]
    return Explanation(
        kind=str(criterion.get("kind", "")),
        question=str(criterion.get("params", {}).get("question", "")),
        calls=shown,
        printed=str(detail.get("printed", "")),
    )


def _shown(called: Mapping[str, Any], calls: Mapping[int, JudgeCall]) -> CallShown:
    call = calls.get(called.get("call") or 0)
    if call is None:
        failure = str(called.get("failed") or "the call is no longer kept")
        return CallShown(str(called.get("model", "")), "errored", (), 0.0, 0, failure)
    value = "" if call.value is None else f" {call.value:g}"
    return CallShown(
        model=str(called.get("model") or call.endpoint or "a model that was removed"),
        outcome=f"{call.state}{value}".replace("_", " "),
        replies=call.replies,
        cost_usd=call.cost_usd,
        tokens=call.tokens_in + call.tokens_out,
    )


def _called(detail: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Of the verdict as a whole, or of each of its steps."""
    yield from detail.get("calls", ())
    for step in detail.get("steps", ()):
        yield from step.get("calls", ())


def _call_ids(detail: Mapping[str, Any]) -> Iterator[int]:
    for called in _called(detail):
        if isinstance(called.get("call"), int):
            yield called["call"]
