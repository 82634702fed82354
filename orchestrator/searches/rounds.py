"""Rounds of proposals: who is asked when, and which edits are known after each.

A round is a function of the `Proposal` rows: offline operators answer in the transaction that asks
them, the others when they do (`orchestrator.proposing`). An engine that is run again finds the
same rounds with the same edits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from django.db import transaction
from django.utils import timezone

from optimizer.edits import Edit
from optimizer.engines.contract import Ask
from optimizer.harness import Harness
from optimizer.lint import Finding, HeldOut, Severity, lint
from optimizer.models import Edit as EditRow
from optimizer.models import Proposal, Search, Tombstone
from optimizer.store import load_harness
from orchestrator.events.services import Fence, NewEvent
from orchestrator.proposing import services as proposing
from orchestrator.proposing.evidence import held_out_of
from orchestrator.proposing.terms import Terms
from orchestrator.searches import proposers
from orchestrator.searches.asking import hold
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.telling import say, tell


class Rounds(Mapping[int, Sequence[Edit]]):
    """Round -> all edits known after it. Only rounds whose proposers have all ended are in it."""

    def __init__(self, search: Search, settings: SearchSettings) -> None:
        self._every = settings.propose_every
        wanted = set(settings.proposers)
        rows: dict[int, list[Proposal]] = {}
        for row in search.proposals.defer("prompt", "answers").order_by("round", "id"):
            rows.setdefault(row.round, []).append(row)
        self._known: dict[int, list[Edit]] = {}
        edits: dict[str, Edit] = {}
        at = 0
        while {r.proposer for r in rows.get(at, ()) if r.state != Proposal.State.WAITING} >= wanted:
            for row in rows[at]:
                for data in row.edits:
                    _add(edits, Edit.from_json(data))
            self._known[at] = list(edits.values())
            at += self._every

    def __getitem__(self, number: int) -> Sequence[Edit]:
        return self._known[number - number % self._every]

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def latest(self) -> Sequence[Edit]:
        return self._known[max(self._known)] if self._known else []


def _add(edits: dict[str, Edit], edit: Edit) -> None:
    """A repeat raises the support: more tasks stand behind it."""
    known = edits.get(edit.sha256)
    if known is None:
        edits[edit.sha256] = edit
        return
    sources = tuple(dict.fromkeys((*known.sources, *edit.sources)))
    support = max(known.support, edit.support, len(sources))
    edits[edit.sha256] = replace(known, sources=sources, support=support)


def ask_round(*, search: Search, settings: SearchSettings, ask: Ask, fence: Fence) -> bool:
    """Asks the proposers of the round; True if all of them have answered by now.

    Safe to repeat: each is asked once per round.
    """
    number = ask.round - ask.round % settings.propose_every
    ask = replace(ask, round=number)
    outside = proposers.outside(settings.proposers)
    with transaction.atomic():
        hold(search, fence)
        for name in proposers.offline(settings.proposers):
            _answer_offline(search, settings, ask, name, fence)
        if outside:
            terms = {name: _terms(settings, name) for name in outside}
            proposing.ask(search=search, ask=ask, proposers=terms)
        note_edits(search, settings)
        waits = list(
            search.proposals.filter(round=ask.round, state=Proposal.State.WAITING)
            .order_by("id")
            .values_list("proposer", flat=True)
        )
        if waits:
            Search.objects.filter(pk=search.pk).update(doing=f"waits for {', '.join(waits)}")
    return not waits


def _terms(settings: SearchSettings, name: str) -> Terms:
    given = {
        "model": settings.proposer_model,
        "protected": list(settings.protected),
        **settings.proposer_settings.get(name, {}),
    }
    return Terms.from_json(given)


def _answer_offline(
    search: Search, settings: SearchSettings, ask: Ask, name: str, fence: Fence
) -> None:
    if search.proposals.filter(round=ask.round, proposer=name).exists():
        return
    found = proposers.propose(search=search, settings=settings, name=name, ask=ask)
    kept, refused = sifted(search, settings, found)
    proposal = Proposal.objects.create(
        search=search,
        round=ask.round,
        proposer=name,
        state=Proposal.State.ANSWERED,
        edits=[edit.to_json() for edit in kept],
        refused=[_refusal(edit, findings) for edit, findings in refused],
        reason=_counted(len(kept), len(refused)),
        answered_at=timezone.now(),
    )
    _bury(search, refused)
    tell_proposal(proposal, fence)


def tell_proposal(proposal: Proposal, fence: Fence | None = None) -> None:
    """Needs a transaction."""
    search = proposal.search
    tell(
        search,
        NewEvent(
            "proposal",
            {
                "id": proposal.pk,
                "round": proposal.round,
                "proposer": proposal.proposer,
                "state": proposal.state,
                "edits": len(proposal.edits),
                "refused": len(proposal.refused),
                "tokens": proposal.tokens,
                "cost_usd": proposal.cost_usd,
                "reason": proposal.reason,
            },
        ),
        fence,
    )
    if proposal.state == Proposal.State.FAILED:
        say(search, f"{proposal.proposer} gave no edits: {proposal.reason}", fence)
    elif proposal.edits or proposal.refused:
        counted = _counted(len(proposal.edits), len(proposal.refused))
        say(
            search,
            f"{proposal.proposer}: {counted}; none is believed before it is measured.",
            fence,
        )


def _counted(kept: int, refused: int) -> str:
    said = f"{kept} edit{'' if kept == 1 else 's'} proposed"
    return f"{said}, {refused} refused by the linter" if refused else said


def sifted(
    search: Search, settings: SearchSettings, edits: Sequence[Edit]
) -> tuple[list[Edit], list[tuple[Edit, list[Finding]]]]:
    """Those that may be tried, and those that may not, with why. Repeats of what is known pass if
    they add support; a buried one needs more support than it had.
    """
    harness, held_out = load_harness(search.seed_harness), held_out_of(search)
    graves = dict(search.tombstones.values_list("edit_sha256", "support"))
    kept: dict[str, Edit] = {}
    refused = []
    for edit in edits:
        findings = _findings(edit, harness, held_out, settings)
        grave = graves.get(edit.sha256)
        if grave is not None and edit.support <= grave:
            message = f"buried, with the support of {grave} tasks; it returns only with more"
            findings.append(Finding("buried", Severity.ERROR, message))
        if findings:
            refused.append((edit, findings))
        else:
            _add(kept, edit)
    return list(kept.values()), refused


def _findings(
    edit: Edit, harness: Harness, held_out: HeldOut, settings: SearchSettings
) -> list[Finding]:
    found = lint(edit, harness, held_out=held_out, protected=settings.protected)
    return [finding for finding in found if finding.severity is Severity.ERROR]


def _refusal(edit: Edit, findings: Sequence[Finding]) -> dict[str, object]:
    return {"edit": edit.to_json(), "findings": [finding.message for finding in findings]}


def _bury(search: Search, refused: Sequence[tuple[Edit, Sequence[Finding]]]) -> None:
    for edit, findings in refused:
        Tombstone.objects.get_or_create(
            search=search,
            edit_sha256=edit.sha256,
            defaults={
                "edit": edit.to_json(),
                "reason": "refused by the linter",
                "evidence": {"findings": [finding.message for finding in findings]},
                "support": edit.support,
            },
        )


def note_edits(search: Search, settings: SearchSettings) -> None:
    """Keeps a row for each edit that is known; needs a transaction."""
    origin: dict[str, int] = {}
    for pk, edits in search.proposals.order_by("round", "id").values_list("id", "edits"):
        for data in edits:
            origin.setdefault(Edit.from_json(data).sha256, pk)
    have = {row.sha256: row for row in search.edits.all()}
    new: list[EditRow] = []
    changed: list[EditRow] = []
    for edit in Rounds(search, settings).latest:
        row = have.get(edit.sha256)
        if row is None:
            new.append(
                EditRow(
                    search=search,
                    position=len(have) + len(new),
                    sha256=edit.sha256,
                    operator=edit.operator,
                    component=edit.component,
                    data=edit.to_json(),
                    support=edit.support,
                    proposal_id=origin.get(edit.sha256),
                )
            )
        elif row.support != edit.support:
            row.support, row.data = edit.support, edit.to_json()
            changed.append(row)
    EditRow.objects.bulk_create(new)
    EditRow.objects.bulk_update(changed, ["support", "data"])
