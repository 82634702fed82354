"""What a rubric is previewed on: a past rollout, or the transcript of a golden case.

A transcript without a log is shown as the log that it would have: each step an action and what it
brought, so that the same templates draw both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from orchestrator.environments.models import Split
from orchestrator.grading import regrade_queries
from orchestrator.grading.golden import cases_of
from orchestrator.grading.models import GoldenCase
from orchestrator.grading.past import why_not_graded
from orchestrator.grading.selecting import Selection
from orchestrator.runs.models import Rollout
from orchestrator.runs.transcripts import transcript_of
from orchestrator.web import queries
from orchestrator.web.trace import Card, build_card, build_trace
from rubrics.models import Rubric
from rubrics.transcript_codec import from_json
from rubrics.types import Transcript

SHOWN_KINDS = frozenset({"started", "told", "skill", "action", "observation"})
SEALED = "sealed"
SHOW = (
    ("", "newest"),
    ("failed", "failed"),
    ("passed", "passed"),
    ("errored", "errored"),
    (SEALED, "sealed test"),
)
"""Rollouts of the sealed test split are offered only by name."""


@dataclass(frozen=True)
class Subject:
    value: str
    """In a form: r and the rollout's id, or g and the golden case's."""
    label: str
    transcript: Transcript | None
    cards: Sequence[Card]
    rollout: Rollout | None = None
    case: GoldenCase | None = None
    warning: str = ""


@dataclass(frozen=True)
class Option:
    value: str
    label: str


@dataclass(frozen=True)
class Offer:
    """What there is to choose from."""

    rollouts: Sequence[Option]
    cases: Sequence[Option]
    show: str
    search: str
    is_of_rubric: bool
    """Only rollouts that this rubric has graded."""


def offer_of(rubric: Rubric, *, show: str, search: str) -> Offer:
    """Rollouts that this rubric has graded; of the whole project where there is none."""
    show = show if show in dict(SHOW) else ""
    chosen = Selection(
        rubric_id=rubric.pk,
        state="" if show == SEALED else show,
        search=search.strip(),
        split=Split.TEST if show == SEALED else "",
        without_test=show != SEALED,
    )
    found = regrade_queries.offered_rollouts(rubric.project_id, chosen)
    is_of_rubric = bool(found) or bool(
        regrade_queries.offered_rollouts(rubric.project_id, Selection(rubric_id=rubric.pk), 1)
    )
    if not is_of_rubric:
        anyones = replace(chosen, rubric_id=None)
        found = regrade_queries.offered_rollouts(rubric.project_id, anyones)
    return Offer(
        rollouts=[Option(f"r{rollout.pk}", _label(rollout)) for rollout in found],
        cases=[
            Option(f"g{case.pk}", f"{case.name}, {case.get_expect_display()}")
            for case in cases_of(rubric)
        ],
        show=show,
        search=search.strip(),
        is_of_rubric=is_of_rubric,
    )


def subject_of(rubric: Rubric, wanted: str, offer: Offer) -> Subject | None:
    """What was asked for; else the first on offer; None where there is nothing."""
    first = next(iter((*offer.rollouts, *offer.cases)), None)
    for value in (wanted, first.value if first else ""):
        kind, digits = value[:1], value[1:]
        if not digits.isdecimal() or len(digits) > 18:
            continue
        if kind == "r":
            rollout = regrade_queries.past_rollout(rubric.project_id, int(digits))
            if rollout is not None:
                return _of_rollout(rollout)
        elif kind == "g":
            case = regrade_queries.golden_case(rubric, int(digits))
            if case is not None:
                return _of_case(case)
    return None


def _of_rollout(rollout: Rollout) -> Subject:
    cards = build_trace(queries.events_of(rollout.stream_id))[-1].cards
    why = why_not_graded(rollout)
    warning = f"{why} A run gives it no score, whatever the rubric." if why else ""
    if rollout.task.split == Split.TEST and not warning:
        warning = "Of the sealed test split: a rubric that is fitted to it unseals it."
    return Subject(
        value=f"r{rollout.pk}",
        label=_label(rollout),
        transcript=transcript_of(rollout),
        cards=[card for card in cards if card.kind in SHOWN_KINDS],
        rollout=rollout,
        warning=warning,
    )


def _of_case(case: GoldenCase) -> Subject:
    value, label = f"g{case.pk}", f"{case.name}, {case.get_expect_display()}"
    try:
        transcript = from_json(case.transcript)
    except ValueError as exc:
        return Subject(value, label, None, (), None, case, f"Its transcript cannot be read: {exc}")
    return Subject(value, label, transcript, cards_of(transcript), None, case)


def _label(rollout: Rollout) -> str:
    score = f"{rollout.score:.2f}" if rollout.score is not None else rollout.get_state_display()
    return f"{rollout.task.key} #{rollout.replicate} · {score} · {rollout.pk}"


@dataclass
class _Event:
    seq: int
    kind: str
    payload: dict[str, Any]
    at: datetime


def cards_of(transcript: Transcript) -> list[Card]:
    """As the log of a run would be drawn; the numbers of observations are those of the steps."""
    now = timezone.now()
    events = [_Event(0, "rollout.started", {"prompt": transcript.task}, now)]
    for step in transcript.steps:
        form = "command" if step.command else "answer" if step.answer is not None else "text"
        said = {"step": step.index, "text": step.action, "form": form}
        said |= {"command": step.command, "answer": step.answer}
        seen = {
            "step": step.index,
            "segments": [{"kind": "env_output", "text": step.output}] if step.output else [],
            "exit_status": step.exit_status,
            "reward": step.reward,
            "done": step.done,
        }
        events.append(_Event(step.seq - 1, "action", said, now))
        events.append(_Event(step.seq, "observation", seen, now))
    return [build_card(event) for event in events]
