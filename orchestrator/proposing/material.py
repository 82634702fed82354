"""From a proposal's row to the question, and from an answer to edits that may be tried.

The question is written once and kept: whoever answers, and however late, answers the same one. What
an answer may do is kept beside it (`Proposal.request`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import Q

from optimizer.edits import Edit, apply_edits
from optimizer.harness import Harness
from optimizer.lint import Rules
from optimizer.models import Nudge, Proposal
from optimizer.reflection import Answer, Mode, Reflection, Sifted, question, schema, sift
from optimizer.reflection.modes import editable
from optimizer.seeds import derive
from optimizer.store import load_harness
from orchestrator.jobs.fencing import Fence, hold_fence
from orchestrator.projects.secrets import derived_key
from orchestrator.proposing import evidence
from orchestrator.proposing.names import HANDED_IN
from orchestrator.proposing.terms import Terms

SECRET = "frames of reflected data"
PERSONS_SUPPORT = 2
"""Of an edit that a person or an agent hands in: they answer for it, so it is tried."""
LEAST_ROOM_CHARS = 5_000
"""Of all traces together; an endpoint with less context is not asked."""


@dataclass(frozen=True)
class Material:
    """What a proposal was asked on."""

    mode: Mode
    harness: Harness
    """That its edits are made for."""
    terms: Terms
    rewrite: bool
    components: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    """That stood in the question."""


def mode_of(proposal: Proposal) -> Mode:
    return Mode.EDITS if proposal.proposer == HANDED_IN else Mode(proposal.proposer)


def material_of(proposal: Proposal) -> Material:
    request = proposal.request
    harness = load_harness(proposal.search.seed_harness)
    is_rewrite = bool(request.get("rewrite"))
    if is_rewrite:
        harness = apply_edits(harness, _parent(request))
    return Material(
        mode=mode_of(proposal),
        harness=harness,
        terms=Terms.from_json(request.get("terms") or {}),
        # A person knows what a whole new text is worth.
        rewrite=is_rewrite or proposal.proposer == HANDED_IN,
        components=tuple(request.get("components") or ()),
        tasks=tuple(request.get("tasks") or ()),
    )


def _parent(request: Mapping[str, Any]) -> list[Edit]:
    return [Edit.from_json(data) for data in request.get("parent") or ()]


def prepare(proposal: Proposal, *, fence: Fence) -> None:
    """Writes the question into the row, where it does not stand there yet. Nudges that nobody has
    heard are in it, and are marked as heard with the same write.

    Raises LeaseLost.
    """
    if proposal.request.get("components") is not None:
        return
    search, given = proposal.search, material_of(proposal)
    if given.mode is Mode.TRIGGERS:
        # Its questions hold what is measured first.
        _write(proposal, "", {"components": _editable(given)}, fence)
        return
    traces = evidence.traces_for(
        search,
        mode=given.mode,
        failed=given.terms.failed,
        passed=given.terms.passed,
        seed=derive(search.seed, "reflection", proposal.round),
        told=_told_before(proposal),
    )
    ids = [int(trace.source.split()[-1]) for trace in traces]
    rollouts = evidence.rollouts_by_id(search, ids)
    functions = evidence.functions_of(rollouts)
    components = _editable(given, has_tools=bool(functions))
    nudges = list(
        search.nudges.filter(Q(proposal=None) | Q(proposal__round=proposal.round)).order_by("id")
    )
    asked = Reflection(
        mode=given.mode,
        harness=given.harness,
        traces=traces,
        components=components,
        max_edits=given.terms.max_edits,
        rewrite=given.rewrite,
        already=_parent(proposal.request),
        graves=evidence.graves_of(search),
        nudges=[nudge.text for nudge in nudges],
        functions=functions,
        ran_with=evidence.ran_with(search, rollouts),
        success=evidence.success_of(search),
        room_chars=given.terms.room_chars,
    )
    told = {
        "components": components,
        "tasks": sorted({trace.task for trace in traces}),
        "rollouts": ids,
        "offered": evidence.parameters_of(functions),
        "schema": schema(asked),
    }
    _write(proposal, question(asked, secret=derived_key(SECRET)), told, fence, nudges)


def _editable(given: Material, *, has_tools: bool = False) -> list[str]:
    return list(
        editable(
            given.mode,
            given.harness,
            has_tools=has_tools,
            asked=given.terms.components,
            protected=given.terms.protected,
        )
    )


def _write(
    proposal: Proposal,
    text: str,
    told: Mapping[str, Any],
    fence: Fence,
    nudges: Sequence[Nudge] = (),
) -> None:
    request = {**proposal.request, **told}
    with transaction.atomic():
        hold_fence(fence)
        Proposal.objects.filter(pk=proposal.pk).update(prompt=text, request=request)
        heard = [nudge.pk for nudge in nudges]
        Nudge.objects.filter(pk__in=heard, proposal=None).update(proposal=proposal)
    proposal.prompt, proposal.request = text, request


def add_question(proposal: Proposal, text: str, *, fence: Fence) -> None:
    """One more of a proposer that asks several; a repeat changes nothing. Raises LeaseLost."""
    if text in proposal.prompt:
        return
    proposal.prompt = f"{proposal.prompt}\n\n{text}".strip()
    with transaction.atomic():
        hold_fence(fence)
        Proposal.objects.filter(pk=proposal.pk).update(prompt=proposal.prompt)


def shorten(proposal: Proposal, *, fence: Fence) -> bool:
    """Writes the question again with half the room for traces; False if that would be too little.

    Raises LeaseLost.
    """
    terms = Terms.from_json(proposal.request.get("terms") or {})
    room_chars = terms.room_chars // 2
    if room_chars < LEAST_ROOM_CHARS:
        return False
    kept = {key: proposal.request[key] for key in ("parent", "rewrite")}
    shorter = replace(terms, room_chars=room_chars).to_json()
    proposal.request, proposal.prompt = {**kept, "terms": shorter}, ""
    prepare(proposal, fence=fence)
    return True


def _told_before(proposal: Proposal) -> list[int]:
    """Rollouts that stood in the questions of earlier rounds."""
    earlier = Proposal.objects.filter(search=proposal.search_id, round__lt=proposal.round)
    return [
        pk
        for request in earlier.values_list("request", flat=True)
        for pk in request.get("rollouts") or ()
    ]


def sifted(proposal: Proposal, answer: Answer) -> Sifted:
    given = material_of(proposal)
    return sift(
        answer,
        given.harness,
        components=given.components,
        max_edits=given.terms.max_edits,
        rewrite=given.rewrite,
        tasks=given.tasks,
        least_support=PERSONS_SUPPORT if proposal.proposer == HANDED_IN else 0,
        graves=evidence.graves_of(proposal.search),
        rules=rules_of(proposal, given),
    )


def rules_of(proposal: Proposal, given: Material) -> Rules:
    return Rules(
        held_out=evidence.held_out_of(proposal.search),
        protected=given.terms.protected,
        offered=proposal.request.get("offered") or None,
    )
