"""The rubric's word on an episode that is not over yet. Pure.

A criterion that looks at the answer, the reward or the final state cannot be decided before the
end: it says pending, and so does everything behind a gate that is pending. The others are graded
on the steps so far, so that a person sees a verdict move. Criteria that need a model or code of
the sandbox are left to runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rubrics.aggregate import aggregate
from rubrics.errors import RubricInvalid
from rubrics.grade import grade
from rubrics.kinds import KINDS
from rubrics.types import Criterion, RubricSpec, Scope, Score, State, Step, Transcript, Verdict

AT_THE_END = frozenset({Scope.FINAL_ANSWER, Scope.ENVIRONMENT_STATE})
ONLY_AT_THE_END = frozenset({"environment_reward"})
"""Kinds that look at the end whatever their scope."""


def transcript_of(steps: Sequence[Step], *, is_sum: bool, wall_s: float) -> Transcript:
    """Of the steps so far, at least one. `is_sum`: their rewards add up to the episode's."""
    answers = [step.answer for step in steps if step.answer is not None]
    rewards = [step.reward for step in steps if step.reward is not None]
    return Transcript(
        steps=tuple(steps),
        answer=answers[-1] if answers else None,
        reward=(sum(rewards) if rewards else None) if is_sum else steps[-1].reward,
        wall_s=wall_s,
    )


def breakdown(
    spec: RubricSpec, transcript: Transcript, *, is_over: bool
) -> tuple[list[Verdict], Score]:
    """One verdict per criterion in the rubric's order, and the score they make."""
    verdicts: list[Verdict] = []
    for block in _blocks(spec.criteria):
        reasons = [_why_pending(criterion, is_over=is_over) for criterion in block]
        ready = [c for c, reason in zip(block, reasons, strict=True) if not reason]
        decided = {
            v.criterion: v for v in _graded(replace(spec, criteria=tuple(ready)), transcript)
        }
        verdicts += [
            decided.get(c.id) or Verdict(c.id, State.PENDING, None, reason)
            for c, reason in zip(block, reasons, strict=True)
        ]
        gate, verdict = block[-1], verdicts[-1]
        if gate.gate and (verdict.state is not State.SCORED or not _is_passed(gate, verdict)):
            break
    for criterion in spec.criteria[len(verdicts) :]:
        gate_id = spec.criteria[len(verdicts) - 1].id
        verdicts.append(_behind(criterion, gate_id, verdicts[-1]))
    return verdicts, aggregate(spec, verdicts)


def _behind(criterion: Criterion, gate_id: str, before: Verdict) -> Verdict:
    if before.state is State.PENDING:
        return Verdict(criterion.id, State.PENDING, None, f"waits for {gate_id}")
    return Verdict.not_applicable(criterion, f"not graded: {gate_id} was not passed")


def _graded(spec: RubricSpec, transcript: Transcript) -> list[Verdict]:
    try:
        return grade(spec, transcript)
    except RubricInvalid as exc:
        return [Verdict.errored(criterion, str(exc)) for criterion in spec.criteria]


def _why_pending(criterion: Criterion, *, is_over: bool) -> str:
    """Empty for a criterion that can be decided now."""
    kind = KINDS.get(criterion.kind)
    if kind is not None and kind.decide is None:
        return "needs a model or the sandbox: graded in runs, not by hand"
    if is_over:
        return ""
    if criterion.scope in AT_THE_END or criterion.kind in ONLY_AT_THE_END:
        return "decided when the episode has ended"
    return ""


def _blocks(criteria: Sequence[Criterion]) -> list[list[Criterion]]:
    """Cut behind each gate."""
    blocks: list[list[Criterion]] = [[]]
    for criterion in criteria:
        blocks[-1].append(criterion)
        if criterion.gate:
            blocks.append([])
    return [block for block in blocks if block]


def _is_passed(criterion: Criterion, verdict: Verdict) -> bool:
    value = verdict.value or 0.0
    return value < criterion.threshold if criterion.negative else value >= criterion.threshold


def as_json(
    spec: RubricSpec, verdicts: Sequence[Verdict], score: Score
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """For an event."""
    by_id = {criterion.id: criterion for criterion in spec.criteria}
    return (
        [
            {
                "criterion": verdict.criterion,
                "name": by_id[verdict.criterion].label,
                "state": verdict.state.value,
                "value": verdict.value,
                "reason": verdict.reason,
                "is_negative": by_id[verdict.criterion].negative,
            }
            for verdict in verdicts
        ],
        {"state": score.state.value, "value": score.value, "reason": score.reason},
    )
