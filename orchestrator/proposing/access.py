"""Fetch and authorise proposals."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from optimizer.models import Proposal
from orchestrator.projects.access import Actor, require
from orchestrator.projects.models import Role
from orchestrator.proposing.names import HANDED_IN


def handed_in_for_view(actor: Actor, search_id: int, round: int) -> Proposal:
    return _handed_in(actor, search_id, round, Role.VIEWER)


def handed_in_for_edit(actor: Actor, search_id: int, round: int) -> Proposal:
    return _handed_in(actor, search_id, round, Role.EDITOR)


def _handed_in(actor: Actor, search_id: int, round: int, needed: Role) -> Proposal:
    proposal = get_object_or_404(
        Proposal.objects.select_related("search__seed_harness", "search__rubric_version"),
        search_id=search_id,
        round=round,
        proposer=HANDED_IN,
    )
    require(actor, proposal.search.project_id, needed)
    return proposal
