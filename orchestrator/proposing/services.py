"""Asking for proposals, taking them back, and ending them once.

A proposal ends by one conditional UPDATE of a row that still waits, so an answer, a failure and a
cancellation that meet cannot all count. Whoever ends it sends `proposal_answered` in that
transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from optimizer.engines.contract import Ask
from optimizer.models import Proposal, Search
from optimizer.reflection.answer import storable
from orchestrator.jobs import services as jobs
from orchestrator.jobs.models import Job
from orchestrator.proposing.names import HANDED_IN, PROPOSERS
from orchestrator.proposing.signals import proposal_answered
from orchestrator.proposing.terms import Terms

__all__ = ["HANDED_IN", "PROPOSERS", "ask", "end", "withdraw"]

JOB_KIND = "proposing.ask"


def ask(*, search: Search, ask: Ask, proposers: Mapping[str, Terms]) -> list[Proposal]:
    """The round's proposal of each proposer, made and queued where there is none. Safe to repeat.

    Needs a transaction. The answers come later: `proposal_answered`, or look at the rows.
    Raises ValueError for an unknown proposer.
    """
    found = []
    for proposer, terms in proposers.items():
        if proposer not in PROPOSERS:
            raise ValueError(f"Unknown proposer {proposer!r}; accepts {', '.join(PROPOSERS)}.")
        proposal, _ = Proposal.objects.get_or_create(
            search=search,
            round=ask.round,
            proposer=proposer,
            defaults={
                "request": {
                    "parent": [edit.to_json() for edit in ask.parent.edits],
                    "rewrite": ask.rewrite,
                    "terms": terms.to_json(),
                }
            },
        )
        if proposal.state == Proposal.State.WAITING:
            jobs.enqueue(kind=JOB_KIND, spec={"proposal_id": proposal.pk}, key=_key(proposal.pk))
        found.append(proposal)
    return found


def withdraw(*, search: Search, reason: str) -> None:
    """Ends what waits for an answer as failed; for a search that has ended."""
    for proposal in search.proposals.filter(state=Proposal.State.WAITING):
        end(proposal, state=Proposal.State.FAILED, reason=reason)
        job = Job.objects.filter(key=_key(proposal.pk)).first()
        if job is not None:
            jobs.cancel(job=job)


def end(
    proposal: Proposal,
    *,
    state: str,
    reason: str,
    edits: Sequence[Mapping[str, Any]] = (),
    refused: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> bool:
    """Answered or failed, once; False if it had ended before. `changes`: further columns."""
    with transaction.atomic():
        ended = Proposal.objects.filter(pk=proposal.pk, state=Proposal.State.WAITING).update(
            state=state,
            reason=storable(reason),
            edits=list(edits),
            refused=list(refused),
            answered_at=timezone.now(),
            **changes,
        )
        if ended:
            proposal.refresh_from_db()
            proposal_answered.send(sender=Proposal, proposal=proposal)
    return bool(ended)


def _key(proposal_id: int) -> str:
    return f"proposal-{proposal_id}"
