"""Edits of a search with their effects, the buried ones, and the proposals they came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.models import Edit, Proposal, Tombstone
from orchestrator.web.ladder import edit_words
from orchestrator.web.search_figures import EffectSpan, effect_spans
from orchestrator.web.search_page import real, whole


@dataclass(frozen=True)
class EffectRow:
    edit: Edit
    words: str
    op: str
    anchor: str
    low: float | None
    high: float | None
    span: EffectSpan | None
    fate: str
    """kept, buried or empty."""

    @property
    def is_screened(self) -> bool:
        return self.span is not None


def effect_rows(edits: Sequence[Edit], buried: Iterable[Tombstone]) -> list[EffectRow]:
    """Strongest first, then those without an estimate."""
    graves = {tombstone.edit_sha256 for tombstone in buried}
    known = [e for e in edits if e.effect_mean is not None and e.effect_sd is not None]
    known.sort(key=lambda edit: -(edit.effect_mean or 0.0))
    measured = [_with_interval(edit) for edit in known]
    spans: list[EffectSpan | None] = [*effect_spans(measured)]
    rest = [edit for edit in edits if edit.effect_mean is None or edit.effect_sd is None]
    rows = []
    for edit, interval, span in zip(
        [*known, *rest],
        [*measured, *([None] * len(rest))],
        [*spans, *([None] * len(rest))],
        strict=True,
    ):
        rows.append(
            EffectRow(
                edit=edit,
                words=edit_words(edit.data),
                op=str(edit.data.get("op", "")),
                anchor=str(edit.data.get("anchor", "")),
                low=interval[1] if interval else None,
                high=interval[2] if interval else None,
                span=span,
                fate="kept" if edit.in_bundle else "buried" if edit.sha256 in graves else "",
            )
        )
    return rows


def _with_interval(edit: Edit) -> tuple[float, float, float]:
    mean, sd = edit.effect_mean or 0.0, edit.effect_sd or 0.0
    return (mean, mean - 1.96 * sd, mean + 1.96 * sd)


def few_words(data: Mapping[str, Any], limit: int = 56) -> str:
    line = " ".join(edit_words(data).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True)
class Grave:
    tombstone: Tombstone
    words: str
    operator: str
    component: str
    low: float | None
    high: float | None
    mean: float | None
    n_with: int | None
    n_without: int | None
    findings: Sequence[str]
    other: Sequence[tuple[str, str]] = ()
    """What else was kept as evidence, name and value."""


EFFECT_KEYS = {"mean", "low", "high", "sd", "with", "without", "n_with", "n_without", "findings"}


def graves(tombstones: Iterable[Tombstone]) -> list[Grave]:
    found = []
    for tombstone in tombstones:
        evidence: Mapping[str, Any] = tombstone.evidence or {}
        mean, sd = real(evidence.get("mean")), real(evidence.get("sd"))
        low, high = real(evidence.get("low")), real(evidence.get("high"))
        if low is None and mean is not None and sd is not None:
            low, high = mean - 1.96 * sd, mean + 1.96 * sd
        found.append(
            Grave(
                tombstone=tombstone,
                words=edit_words(tombstone.edit),
                operator=str(tombstone.edit.get("operator", "")),
                component=str(tombstone.edit.get("component", "")),
                mean=mean,
                low=low,
                high=high,
                n_with=whole(evidence.get("with", evidence.get("n_with"))),
                n_without=whole(evidence.get("without", evidence.get("n_without"))),
                findings=[str(item) for item in evidence.get("findings", ())],
                other=[
                    (str(key), f"{value:.3g}" if isinstance(value, float) else str(value))
                    for key, value in evidence.items()
                    if key not in EFFECT_KEYS
                ],
            )
        )
    return found


# --- proposals


@dataclass(frozen=True)
class ProposalRow:
    proposal: Proposal
    n_edits: int
    n_refused: int


@dataclass(frozen=True)
class ProposalTotals:
    rows: Sequence[ProposalRow] = field(default_factory=list)
    tokens: int = 0
    cost_usd: float = 0.0
    waiting: int = 0
    failed: int = 0


def proposal_rows(proposals: Sequence[Proposal]) -> ProposalTotals:
    rows = [ProposalRow(p, len(p.edits), len(p.refused)) for p in proposals]
    return ProposalTotals(
        rows=rows,
        tokens=sum(p.tokens for p in proposals),
        cost_usd=sum(p.cost_usd for p in proposals),
        waiting=sum(p.state == Proposal.State.WAITING for p in proposals),
        failed=sum(p.state == Proposal.State.FAILED for p in proposals),
    )


@dataclass(frozen=True)
class EditCard:
    """An edit of a proposal, and what the linter had against it."""

    words: str
    op: str
    component: str
    anchor: str
    support: int
    findings: Sequence[str] = ()


def edit_cards(edits: Sequence[Mapping[str, Any]]) -> list[EditCard]:
    return [_card(edit, ()) for edit in edits]


def refused_cards(refused: Sequence[Any]) -> list[EditCard]:
    return [
        _card(item.get("edit") or {}, [_finding(f) for f in item.get("findings", ())])
        for item in refused
        if isinstance(item, Mapping)
    ]


@dataclass(frozen=True)
class Reply:
    """One raw answer, and why it was no use."""

    text: str
    problem: str
    by: str


def replies_of(answers: Sequence[Any]) -> list[Reply]:
    return [
        Reply(str(a.get("text", "")), str(a.get("problem", "")), str(a.get("by", "")))
        if isinstance(a, Mapping)
        else Reply(str(a), "", "")
        for a in answers
    ]


def _card(edit: Mapping[str, Any], findings: Sequence[str]) -> EditCard:
    return EditCard(
        words=edit_words(edit),
        op=str(edit.get("op", "")),
        component=str(edit.get("component", "")),
        anchor=str(edit.get("anchor", "")),
        support=whole(edit.get("support")) or 0,
        findings=findings,
    )


def _finding(value: Any) -> str:
    """A finding is a sentence, or has one."""
    if isinstance(value, Mapping):
        return str(value.get("message") or value.get("text") or value.get("reason") or dict(value))
    return str(value)
