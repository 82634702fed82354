"""Golden cases: transcripts whose verdict everybody agrees on, and whether a draft gives it.

A case keeps a copy of its transcript, so it stays when its rollout goes. It is about the rollout's
score against the pass threshold, or about one criterion, by its id. A case holds, does not hold,
or cannot be told: its criterion is not in the draft, the draft is unfinished, or a model would have
to be asked. What errored does not hold: a rubric that cannot decide a golden case is no good.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction

from orchestrator.grading.errors import GoldenRefused
from orchestrator.grading.models import GoldenCase, GoldenExpectation
from orchestrator.grading.preview import Preview, preview
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.runs.models import Rollout
from orchestrator.runs.transcripts import transcript_of
from rubrics.models import Rubric
from rubrics.transcript_codec import from_json, to_json
from rubrics.types import State, Transcript

MAX_CASES = 200
MAX_NAME = 120
DEADLINE_S = 120.0
"""For all cases of a rubric; those behind it cannot be told."""


@dataclass(frozen=True)
class GoldenResult:
    case: GoldenCase
    holds: bool | None
    """None: cannot be told; `why` says so."""
    value: float | None
    why: str


@dataclass(frozen=True)
class GoldenReport:
    results: Sequence[GoldenResult]

    @property
    def failed(self) -> list[GoldenResult]:
        return [result for result in self.results if result.holds is False]

    @property
    def n_held(self) -> int:
        return sum(result.holds is True for result in self.results)

    @property
    def n_untold(self) -> int:
        return sum(result.holds is None for result in self.results)


def add_from_rollout(
    *, actor: User, rubric: Rubric, rollout: Rollout, name: str, expect: str, criterion: str = ""
) -> GoldenCase:
    """A copy of what grading may see of a past rollout. Raises GoldenRefused."""
    return _add(actor, rubric, name, expect, criterion, transcript_of(rollout), rollout)


def add_typed(
    *,
    actor: User,
    rubric: Rubric,
    name: str,
    expect: str,
    transcript: Mapping[str, Any] | Transcript,
    criterion: str = "",
) -> GoldenCase:
    """Of a transcript that somebody wrote, as `rubrics.transcript_codec` has it. Raises
    GoldenRefused.
    """
    if not isinstance(transcript, Transcript):
        try:
            transcript = from_json(transcript)
        except ValueError as exc:
            raise GoldenRefused(f"The transcript cannot be read: {exc}.") from None
    return _add(actor, rubric, name, expect, criterion, transcript, None)


def remove_case(*, actor: User, case: GoldenCase) -> None:
    require(actor, case.rubric.project_id, Role.EDITOR)
    case.delete()


def cases_of(rubric: Rubric) -> list[GoldenCase]:
    return list(rubric.golden_cases.select_related("rollout", "created_by").order_by("id"))


def run_golden(
    project_id: int,
    spec: Mapping[str, Any],
    cases: Sequence[GoldenCase],
    *,
    with_judges: bool = False,
) -> GoldenReport:
    """All cases on a rubric that may be unfinished. Blocks for as long as grading takes."""
    started = time.monotonic()
    results = []
    for case in cases:
        if time.monotonic() - started > DEADLINE_S:
            results.append(_untold(case, f"not reached within {DEADLINE_S:g} s"))
            continue
        try:
            transcript = from_json(case.transcript)
        except ValueError as exc:
            results.append(_untold(case, f"its transcript cannot be read: {exc}"))
            continue
        shown = preview(project_id, spec, transcript, with_judges=with_judges)
        results.append(_of_criterion(case, shown) if case.criterion else _of_whole(case, shown))
    return GoldenReport(results)


def _of_whole(case: GoldenCase, shown: Preview) -> GoldenResult:
    score = shown.score
    if score is None:
        return _untold(case, "the rubric is unfinished")
    if score.state is State.PENDING:
        return _untold(case, "a model has to be asked")
    if score.value is None:
        return GoldenResult(case, False, None, f"{score.state.value}: {score.reason}")
    told = f"score {score.value:.2f}, passes at {shown.passes_at:.2f}"
    return GoldenResult(
        case, shown.is_passed is _wants(case), score.value, _with_reasons(told, shown)
    )


def _of_criterion(case: GoldenCase, shown: Preview) -> GoldenResult:
    line = next((line for line in shown.lines if line.criterion == case.criterion), None)
    if line is None:
        return _untold(case, f"the rubric has no criterion {case.criterion}")
    if line.verdict is None:
        return _untold(case, "the criterion is unfinished")
    verdict = line.verdict
    if verdict.state is State.PENDING:
        return _untold(case, "a model has to be asked")
    if verdict.value is None:
        return GoldenResult(case, False, None, f"{verdict.state.value}: {verdict.reason}")
    return GoldenResult(case, line.passed is _wants(case), verdict.value, verdict.reason)


def _with_reasons(told: str, shown: Preview) -> str:
    lost = [
        f"{line.name}: {line.verdict.reason}"
        for line in shown.lines
        if line.verdict is not None and line.passed is False
    ]
    return f"{told}. {'; '.join(lost[:3])}" if lost else told


def _wants(case: GoldenCase) -> bool:
    return case.expect == GoldenExpectation.PASS


def _untold(case: GoldenCase, why: str) -> GoldenResult:
    return GoldenResult(case, None, None, why)


def _add(
    actor: User,
    rubric: Rubric,
    name: str,
    expect: str,
    criterion: str,
    transcript: Transcript,
    rollout: Rollout | None,
) -> GoldenCase:
    require(actor, rubric.project_id, Role.EDITOR)
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME:
        raise GoldenRefused(f"The name must have 1 to {MAX_NAME} characters.")
    if expect not in GoldenExpectation.values:
        raise GoldenRefused("A golden case must pass or must fail; choose one.")
    if rubric.golden_cases.count() >= MAX_CASES:
        raise GoldenRefused(f"A rubric takes {MAX_CASES} golden cases; remove one first.")
    try:
        with transaction.atomic():
            return GoldenCase.objects.create(
                rubric=rubric,
                name=name,
                expect=expect,
                criterion=criterion,
                transcript=to_json(transcript),
                rollout=rollout,
                created_by=actor,
            )
    except IntegrityError:
        raise GoldenRefused(f"There is a golden case {name} already.") from None
