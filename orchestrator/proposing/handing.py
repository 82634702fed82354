"""Proposals that are answered by hand: what to hand out, and taking the answer.

An answer is read as a model's is. One that cannot be read, or of which nothing may be tried, is
refused with the reasons and the proposal waits on; it counts once one edit may be tried, or once it
says that nothing would help.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from optimizer.models import Proposal
from optimizer.reflection import read_answer
from optimizer.reflection.answer import storable
from optimizer.reflection.evidence import shown
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.proposing import evidence, services
from orchestrator.proposing.errors import AnswerRefused, NotWaiting
from orchestrator.proposing.material import material_of, mode_of, sifted
from orchestrator.proposing.names import HANDED_IN

FORMAT = 1
"""Of the file; raised when a field changes its meaning."""
ROOM_CHARS = 200_000
"""Of one trace in the file: more than in a prompt, since a file can be searched."""
MAX_ANSWER_CHARS = 400_000


def handed_out(proposal: Proposal) -> dict[str, Any]:
    """A proposal as plain values: what is asked, in which form, and the rollouts behind it.

    Raises NotWaiting while its question is being written.
    """
    if not proposal.prompt:
        raise NotWaiting("The question is still being written; ask again in a moment.")
    search, given = proposal.search, material_of(proposal)
    rollouts = evidence.rollouts_by_id(search, proposal.request.get("rollouts") or ())
    success = evidence.success_of(search)
    return {
        "format": FORMAT,
        "proposal": proposal.pk,
        "search": search.pk,
        "round": proposal.round,
        "proposer": proposal.proposer,
        "state": proposal.state,
        "max_edits": given.terms.max_edits,
        "prompt": proposal.prompt,
        "schema": proposal.request.get("schema") or {},
        "components": {
            key: text for key, text in given.harness.components().items() if key in given.components
        },
        "rollouts": [
            {"id": rollout.pk, **shown(trace, ROOM_CHARS, success=success)}
            for rollout, trace in zip(rollouts, evidence.traces_of(search, rollouts), strict=True)
        ],
        "nudges": list(proposal.nudges.order_by("id").values_list("text", flat=True)),
    }


def answer(*, actor: User, proposal: Proposal, text: str) -> Proposal:
    """Ends the proposal with these edits. Raises AnswerRefused; Http404, PermissionDenied."""
    require(actor, proposal.search.project_id, Role.EDITOR)
    if proposal.proposer != HANDED_IN:
        raise NotWaiting(f"{proposal.proposer} is answered by its model, not by hand.")
    if proposal.state != Proposal.State.WAITING:
        raise NotWaiting(f"This proposal is {proposal.get_state_display()} already.")
    if not proposal.prompt:
        raise NotWaiting("The question is still being written; answer in a moment.")
    if len(text) > MAX_ANSWER_CHARS:
        raise AnswerRefused(f"An answer has at most {MAX_ANSWER_CHARS:,} characters.")
    read = read_answer(text, mode_of(proposal))
    if not read.is_read:
        raise AnswerRefused(f"The answer cannot be read: {read.problems[0]}.")
    found = sifted(proposal, read)
    if found.refused and not found.kept:
        raise AnswerRefused(
            "Nothing of the answer may be tried.", tuple(item.sentence for item in found.refused)
        )
    said = {"text": storable(text), "problem": "", "by": actor.get_username()}
    with transaction.atomic():
        is_taken = services.end(
            proposal,
            state=Proposal.State.ANSWERED,
            reason=read.cause or "It named no cause.",
            edits=[edit.to_json() for edit in found.kept],
            refused=[item.to_json() for item in found.refused],
            answers=[*proposal.answers, said],
            seconds=(timezone.now() - proposal.created_at).total_seconds(),
            created_by=actor,
        )
    if not is_taken:
        raise NotWaiting("Somebody else has answered it in the meantime.")
    return proposal
