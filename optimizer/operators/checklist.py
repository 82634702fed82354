"""A checklist of what graders often find missing.

Only criteria whose text the agent may know are handed over (`Evidence.criteria`): a harness that
tells its agent how it is graded is another experiment than one that does not, and people decide
which one they want. The edits are named `rubric_derived` wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.edits import Edit, Op
from optimizer.harness import INSTRUCTIONS
from optimizer.operators.evidence import Evidence, PublicCriterion, Trace

GROUP = "checklist"
MIN_TASKS = 2
"""Distinct tasks in which a criterion was not met."""
MAX_ITEMS = 8
OPERATOR = "checklist.rubric_derived"


def checklists(evidence: Evidence) -> list[Edit]:
    """A list of all criteria that often fail, and one of the most frequent alone; alternatives."""
    missed = {
        criterion.id: tasks
        for criterion in evidence.criteria
        if len(tasks := tasks_missed(criterion.id, evidence.attempts)) >= MIN_TASKS
    }
    often = [criterion for criterion in evidence.criteria if criterion.id in missed]
    often.sort(key=lambda item: (-len(missed[item.id]) * item.weight, item.id))
    lists = [often[:MAX_ITEMS], often[:1]] if len(often) > 1 else [often]
    return [
        Edit(
            Op.APPEND,
            INSTRUCTIONS,
            content=_text(chosen),
            operator=OPERATOR,
            support=len(set().union(*(missed[item.id] for item in chosen))),
            group=GROUP,
        )
        for chosen in lists
        if chosen
    ]


def tasks_missed(criterion: str, attempts: Sequence[Trace]) -> frozenset[str]:
    """Tasks in which the criterion was decided and not met."""
    return frozenset(
        trace.task
        for trace in attempts
        for judgement in trace.judgements
        if judgement.criterion == criterion and judgement.is_passed is False
    )


def _text(criteria: Sequence[PublicCriterion]) -> str:
    lines = [
        f"- {'Avoid: ' if item.is_negative else ''}{' '.join(item.text.split())}"
        for item in criteria
    ]
    return "\n".join(["Before the last action, check:", *lines])
