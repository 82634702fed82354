"""A rubric that may be unfinished, on one transcript: what can be graded is, the rest says why not.

Code decides at once. Judges cost money and seconds, so their criteria wait until somebody asks for
them; `pending` says so. The whole has a deadline, and what did not come within it is errored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.grading.findings import Note, criterion_alone, read
from orchestrator.judging.services import grading_services
from rubrics.aggregate import aggregate, is_passed
from rubrics.grade import grade_async, is_group
from rubrics.kinds import KINDS
from rubrics.types import Criterion, RubricSpec, Score, State, Transcript, Verdict

DEADLINE_S = 20.0
"""Of each criterion that code decides; they run side by side."""
JUDGES_DEADLINE_S = 60.0
NOT_ASKED = "A model decides this one; it is asked when you say so."
IN_GROUPS = "Compares the rollouts of a task; a back-test says what it makes of them."


@dataclass(frozen=True)
class Line:
    """One criterion of the preview."""

    criterion: str
    name: str
    kind: str
    is_judged: bool
    is_negative: bool
    verdict: Verdict | None
    """None for one that cannot be graded as it is."""
    passed: bool | None
    took_s: float | None
    """None where nothing was graded."""
    problems: Sequence[Note] = ()
    """Why it cannot be graded."""

    @property
    def call_ids(self) -> list[int]:
        """Of the judges' calls behind it."""
        detail = self.verdict.detail if self.verdict else {}
        parts = [detail, *(detail.get("steps") or ())]
        calls = [call for part in parts for call in part.get("calls") or ()]
        return [call["call"] for call in calls if isinstance(call.get("call"), int)]


@dataclass(frozen=True)
class Preview:
    lines: Sequence[Line]
    score: Score | None
    """None while the rubric as a whole cannot be read."""
    passes_at: float
    problems: Sequence[Note]
    """Of the rubric as a whole."""
    took_s: float

    @property
    def n_waiting(self) -> int:
        """Criteria that wait until a model is asked."""
        verdicts = [line.verdict for line in self.lines]
        return sum(v is not None and v.reason == NOT_ASKED for v in verdicts)

    @property
    def is_passed(self) -> bool | None:
        if self.score is None or self.score.value is None:
            return None
        return self.score.value >= self.passes_at

    @property
    def cited(self) -> frozenset[int]:
        return frozenset(seq for line in self.lines if line.verdict for seq in line.verdict.cites)


def is_judged(criterion: Criterion) -> bool:
    """Whether grading it asks a model."""
    return KINDS[criterion.kind].decide is None and criterion.kind != "python"


def preview(
    project_id: int,
    spec: Mapping[str, Any],
    transcript: Transcript,
    *,
    with_judges: bool = False,
) -> Preview:
    """Blocks for as long as grading takes; call it where no event loop runs."""
    started = time.monotonic()
    reading = read(spec)
    written = [item for item in spec.get("criteria") or () if isinstance(item, Mapping)]
    if reading.spec is not None:
        readable = reading.spec
    else:
        alone = [criterion_alone(item) for item in written]
        # Without the rest nobody knows what a gate or a group would make of it.
        readable = RubricSpec(tuple(replace(c, gate=False) for c in alone if c is not None))
    verdicts, times = asyncio.run(_graded(project_id, readable, transcript, with_judges))
    criteria = {criterion.id: criterion for criterion in readable.criteria}
    lines = []
    for item in written:
        id = str(item.get("id", ""))
        own = [note for note in reading.problems if note.criterion == id]
        lines.append(_line(item, criteria.get(id), verdicts.get(id), times.get(id), own))
    return Preview(
        lines=lines,
        score=aggregate(reading.spec, verdicts.values()) if reading.spec is not None else None,
        passes_at=readable.pass_threshold,
        problems=[note for note in reading.problems if not note.criterion],
        took_s=time.monotonic() - started,
    )


async def _graded(
    project_id: int, spec: RubricSpec, transcript: Transcript, with_judges: bool
) -> tuple[dict[str, Verdict], Mapping[str, float]]:
    """Each criterion by itself, for its time; then what gates and sequences make of them.

    Judges come last, so that none is asked behind a gate that code has shut.
    """
    times: dict[str, float] = {}
    if not spec.criteria:
        return {}, times
    waiting = {
        c.id: Verdict(c.id, State.PENDING, None, IN_GROUPS if is_group(c) else NOT_ASKED)
        for c in spec.criteria
        if is_judged(c)
    }
    async with grading_services(project_id) as services:

        async def alone(criterion: Criterion, timeout_s: float) -> Verdict:
            started = time.monotonic()
            lonely = RubricSpec((replace(criterion, gate=False, group=""),))
            (verdict,) = await grade_async(
                lonely, transcript, services=services, timeout_s=timeout_s
            )
            times[criterion.id] = time.monotonic() - started
            return verdict

        async def together(known: Mapping[str, Verdict]) -> dict[str, Verdict]:
            found = await grade_async(spec, transcript, services=services, known=known)
            return {verdict.criterion: verdict for verdict in found}

        by_code = [c for c in spec.criteria if c.id not in waiting]
        known = waiting | await _side_by_side(by_code, alone, DEADLINE_S)
        found = await together(known)
        if with_judges:
            reached = [
                c for c in spec.criteria if c.id in found and found[c.id].reason == NOT_ASKED
            ]
            known |= await _side_by_side(reached, alone, JUDGES_DEADLINE_S)
            found = await together(known)
    return found, times


async def _side_by_side(
    criteria: Sequence[Criterion],
    alone: Callable[[Criterion, float], Coroutine[Any, Any, Verdict]],
    timeout_s: float,
) -> dict[str, Verdict]:
    async with asyncio.TaskGroup() as group:
        tasks = {c.id: group.create_task(alone(c, timeout_s)) for c in criteria}
    return {id: task.result() for id, task in tasks.items()}


def _line(
    item: Mapping[str, Any],
    criterion: Criterion | None,
    verdict: Verdict | None,
    took_s: float | None,
    problems: Sequence[Note],
) -> Line:
    id = str(item.get("id", ""))
    return Line(
        criterion=id,
        name=str(item.get("name") or id),
        kind=str(item.get("kind") or ""),
        is_judged=criterion is not None and is_judged(criterion),
        is_negative=criterion is not None and criterion.negative,
        verdict=verdict,
        passed=is_passed(criterion, verdict) if criterion is not None and verdict else None,
        took_s=took_s,
        problems=problems,
    )
