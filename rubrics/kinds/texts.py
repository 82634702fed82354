"""Which texts a criterion reads, and how a finding in them becomes a verdict.

Final answer: one text, absent when the agent gave none (a legitimate 0, not an error).
Trajectory: any step may hold the finding. Step: the value is the share of steps that hold it,
and the verdict cites the ones that do not.
"""

from __future__ import annotations

from collections.abc import Callable

from rubrics.errors import CriterionFailed
from rubrics.kinds.base import Param, ParamType
from rubrics.types import Criterion, Scope, Step, Transcript, Verdict

SOURCE = Param(
    "source",
    ParamType.TEXT,
    "which side of a step is read, for the scopes trajectory and step",
    default="actions",
    choices=("actions", "outputs", "both"),
)
EXPECTED = Param(
    "expected", ParamType.TEXT, "the text to find; where absent, the task's reference answer"
)
IGNORE_CASE = Param("ignore_case", ParamType.FLAG, "capitals do not matter", default=False)

TEXT_SCOPES = (Scope.FINAL_ANSWER, Scope.TRAJECTORY, Scope.STEP)


def judge_texts(
    criterion: Criterion,
    transcript: Transcript,
    holds: Callable[[str], bool],
    what: str,
) -> Verdict:
    """The verdict for "the text satisfies `holds`" in the criterion's scope;

    `what` names it in the reason.
    """
    if criterion.scope is Scope.FINAL_ANSWER:
        if transcript.answer is None:
            return Verdict.scored(criterion, 0.0, "no final answer")
        found = holds(transcript.answer)
        cites = tuple(step.seq for step in transcript.steps if step.answer is not None)
        return Verdict.scored(criterion, float(found), f"{'' if found else 'not '}{what}", cites)
    if not transcript.steps:
        return Verdict.scored(criterion, 0.0, "no steps")
    source = str(criterion.params.get("source", SOURCE.default))
    hits = [step.seq for step in transcript.steps if holds(_side(step, source))]
    if criterion.scope is Scope.TRAJECTORY:
        reason = f"{what} in {len(hits)} of {transcript.n_steps} steps"
        return Verdict.scored(criterion, float(bool(hits)), reason, tuple(hits))
    misses = tuple(step.seq for step in transcript.steps if step.seq not in set(hits))
    reason = f"{what} in {len(hits)} of {transcript.n_steps} steps"
    return Verdict.scored(criterion, len(hits) / transcript.n_steps, reason, misses)


def expected_text(criterion: Criterion, transcript: Transcript) -> str:
    """The text to compare with. Raises CriterionFailed where neither criterion nor task has one."""
    expected = criterion.params.get("expected", transcript.expected)
    if expected is None:
        raise CriterionFailed("neither the criterion nor the task has an expected answer")
    return str(expected)


def _side(step: Step, source: str) -> str:
    if source == "actions":
        return step.action
    return step.output if source == "outputs" else f"{step.action}\n{step.output}"
