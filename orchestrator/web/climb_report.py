"""A climb as a report that can be handed on: what was measured, why it turned, what it rests on.

Pure. Nothing is computed anew, so that the ladder, its report and its certificates agree for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.climbs.models import Climb, Rung
from orchestrator.climbs.queries import Decision, LadderView
from orchestrator.web.ladder import EditRow, RungRow, TrainingCurves
from orchestrator.web.templatetags.formats import (
    DASH,
    compact,
    count,
    decimal,
    duration,
    interval,
    score,
    signed,
    usd,
)
from orchestrator.web.text import cell

HASHES = (
    ("environment", "Environment"),
    ("rubric", "Rubric"),
    ("harness", "Harness"),
    ("adapter", "Adapter"),
)


def why_between(rungs: Sequence[Rung], decisions: Sequence[Decision], climb: Climb) -> list[str]:
    """For each rung the decision that led to it, in one sentence; empty for the first."""
    own = {rung.sentence for rung in rungs if rung.sentence}
    said = [decision for decision in decisions if decision.text not in own]
    found = [""] * min(1, len(rungs))
    for before, rung in itertools.pairwise(rungs):
        found.append(_why(before, rung, said, climb))
    return found


def _why(before: Rung, rung: Rung, said: Sequence[Decision], climb: Climb) -> str:
    advice = climb.advice or {}
    if rung.kind == "echo" and advice.get("reason"):
        overruled = advice.get("chosen") and advice.get("chosen") != advice.get("next")
        text = str(advice["reason"])
        return f"A person overruled the advice. It was: {text}" if overruled else text
    if before.ended_at is None:
        return ""
    until = rung.ended_at or datetime.max.replace(tzinfo=UTC)
    return next((d.text for d in said if before.ended_at <= d.at <= until), "")


@dataclass(frozen=True)
class Stand:
    """What one rung's certificate rests on."""

    name: str
    verdict: str
    parts: Sequence[tuple[str, str, str]]
    """What, its name, its sha256."""
    tasks: Sequence[str]
    seed: object
    measured_at: str


def stands_of(rungs: Sequence[RungRow]) -> list[Stand]:
    return [
        Stand(
            name=row.name,
            verdict=row.rung.verdict,
            parts=[
                (word, str(certificate.get(key, "")), str(certificate[f"{key}_sha256"]))
                for key, word in HASHES
                if certificate.get(f"{key}_sha256")
            ],
            tasks=[str(key) for key in certificate.get("tasks", ())],
            seed=certificate.get("seed"),
            measured_at=str(certificate.get("measured_at", "")),
        )
        for row in rungs
        if (certificate := row.rung.certificate)
    ]


@dataclass(frozen=True)
class Report:
    view: LadderView
    rungs: Sequence[RungRow]
    stands: Sequence[Stand]
    edits: Sequence[EditRow]
    curves: TrainingCurves | None
    harness: Sequence[Mapping[str, Any]]
    """Components that changed: key, word, plain unified text."""
    address: str
    made_at: datetime

    @property
    def climb(self) -> Climb:
        return self.view.climb


def markdown(report: Report) -> str:
    """The report for a repository or a pull request. Texts from outside are quoted or fenced."""
    climb = report.climb
    lines = [
        f"# {_inline(climb.name)}: {report.view.headline}",
        "",
        f"{_inline(climb.model.name)} on {_inline(climb.environment_version)}, graded by "
        f"{_inline(climb.rubric_version)}. Climb {climb.pk}, {climb.state}.",
        "",
        "| Rung | Verdict | Score, 95 % | n | Gain, 95 % | Rollouts | Tokens | Cost | Time |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_rung_line(row) for row in report.rungs),
        "",
        "A failure is never a zero: what errored is left out of the score and counted. Gains are "
        "paired on task and seed on the sealed test.",
        "",
        *_turns(report),
        *_edits(report),
        *_harness(report),
        *_training(report),
        *_stands(report),
        f"Made by Switchback at {report.made_at:%Y-%m-%d %H:%M} UTC from {report.address}",
    ]
    return "\n".join(lines) + "\n"


def _rung_line(row: RungRow) -> str:
    rung, compared = row.rung, row.comparison
    gain = DASH
    if compared is not None and row.has_gain:
        gain = f"{signed(compared.difference)} {interval(compared.low, compared.high, 's')}"
    errored = f", {count(rung.n_errored)} errored" if rung.n_errored else ""
    cells = (
        row.name,
        (rung.verdict or rung.state).replace("_", " "),
        f"{score(rung.score)} {interval(rung.score_low, rung.score_high)}".strip(),
        f"{count(rung.n_scored)}{errored}",
        gain,
        count(rung.rollouts_spent or None),
        compact(rung.tokens_spent) if rung.rollouts_spent else DASH,
        usd(rung.cost_usd) if rung.rollouts_spent else DASH,
        duration(row.seconds),
    )
    return f"| {' | '.join(cells)} |"


def _turns(report: Report) -> list[str]:
    told = [(row.name, row.why) for row in report.rungs if row.why]
    lines = ["## Why it turned", ""] if told or report.view.decisions else []
    lines += [f"- **Before {name}:** {_inline(why)}" for name, why in told]
    lines += [
        f"- {decision.at.astimezone(UTC):%H:%M:%S} {_inline(decision.text)}"
        for decision in report.view.decisions
    ]
    return [*lines, ""] if lines else []


def _edits(report: Report) -> list[str]:
    screened = [row for row in report.edits if row.is_screened]
    if not screened:
        return []
    head = [
        "## Edits that were tried",
        "",
        "| Edit | Part | Effect, 95 % | Taken |",
        "|---|---|---:|---|",
    ]
    rows = [
        f"| {_inline(cell(row.words, 120))} | {_inline(row.edit.component)} | "
        f"{signed(row.edit.effect_mean)} {interval(row.low, row.high, 's')} | "
        f"{'yes' if row.edit.in_bundle else 'no'} |"
        for row in screened
    ]
    return [*head, *rows, ""]


def _harness(report: Report) -> list[str]:
    if not report.harness:
        return []
    lines = ["## What changed in the harness", ""]
    for component in report.harness:
        text = str(component["text"])
        fence = "`" * max(3, _longest_run(text) + 1)
        lines += [f"### {_inline(component['key'])} ({component['word']})", ""]
        lines += [f"{fence}diff", text.rstrip("\n"), fence, ""]
    return lines


def _training(report: Report) -> list[str]:
    if report.curves is None:
        return []
    lines = ["## Training", ""]
    if report.curves.sentence:
        lines += [_inline(report.curves.sentence), ""]
    lines += ["| Step | Reward | n | Masked | Environment, nats per token |"]
    lines += ["|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {step.step} | {decimal(step.reward)} | {count(step.n)} | {count(step.masked)} | "
        f"{decimal(step.nats, 3)} |"
        for step in report.curves.steps
    ]
    return [*lines, ""]


def _stands(report: Report) -> list[str]:
    lines = ["## What it rests on", ""] if report.stands else []
    for stand in report.stands:
        seed = "" if stand.seed is None else f", seed {stand.seed}"
        lines.append(f"- **{stand.name}** ({stand.verdict or 'no verdict'}){seed}")
        lines += [f"  - {what} {_inline(name)} `{sha}`" for what, name, sha in stand.parts]
        if stand.tasks:
            lines.append(f"  - {len(stand.tasks)} tasks: {_inline(', '.join(stand.tasks))}")
    return [*lines, ""] if lines else []


def _inline(value: object) -> str:
    """One line that is nothing but text in Markdown."""
    text = " ".join(str(value).split())
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text


def _longest_run(text: str) -> int:
    longest = here = 0
    for sign in text:
        here = here + 1 if sign == "`" else 0
        longest = max(longest, here)
    return longest
