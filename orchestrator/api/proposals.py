"""Proposals that are handed in: take the question, give the answer."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypedDict

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from optimizer.models import Proposal
from orchestrator.api.base import Endpoint, operation, page_url
from orchestrator.api.shapes import schema_of
from orchestrator.projects.models import User
from orchestrator.proposing.access import handed_in_for_edit, handed_in_for_view
from orchestrator.proposing.handing import answer, handed_out


class ProposalAnswer(TypedDict):
    proposal: int
    round: int
    state: str
    reason: str
    edits: list[Any]
    refused: Annotated[list[Any], "Edits that could not be used, each with its reason."]
    html_url: str


class QuestionAnswer(ProposalAnswer):
    format: Annotated[Any, "Of the question; it changes with its fields."]
    search: int
    proposer: str
    max_edits: int
    prompt: Annotated[str, "What a model would be asked."]
    schema: Annotated[dict[str, Any], "Of the answer."]
    components: Annotated[dict[str, Any], "Texts that may be edited."]
    rollouts: Annotated[list[Any], "Those that the question rests on, with their traces."]
    nudges: list[str]


class HandedIn(Endpoint):
    """The proposal of a search's round that waits for a person or an agent."""

    area = "searches"

    @operation(QuestionAnswer)
    def get(self, request: Request, search_id: int, round: int) -> Response:
        """The question with its form and its traces; editors and viewers."""
        proposal = handed_in_for_view(request.user, search_id, round)
        told = {**handed_out(proposal), **_outcome(proposal)}
        return Response({**told, "html_url": _page(request, proposal)})

    @extend_schema(
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiResponse(schema_of(ProposalAnswer), description="Taken.")},
    )
    def post(self, request: Request, search_id: int, round: int) -> Response:
        """The answer, as the object that the question asks for, or as a reply in `text`."""
        proposal = handed_in_for_edit(request.user, search_id, round)
        assert isinstance(request.user, User), "nobody else passed the line above"
        answered = answer(actor=request.user, proposal=proposal, text=_text(request.data))
        told = {"proposal": answered.pk, "round": answered.round, **_outcome(answered)}
        return Response({**told, "html_url": _page(request, answered)})


def _page(request: Request, proposal: Proposal) -> str:
    search = proposal.search
    return page_url(request, "search_proposal", search.project_id, search.pk, proposal.pk)


def _outcome(proposal: Proposal) -> dict[str, Any]:
    return {
        "state": proposal.state,
        "reason": proposal.reason,
        "edits": proposal.edits,
        "refused": proposal.refused,
    }


def _text(data: Any) -> str:
    if not isinstance(data, dict):
        raise ValidationError({"answer": ["accepts a JSON object with cause and edits"]})
    text = data.get("text")
    if isinstance(text, str) and "edits" not in data:
        return text
    return json.dumps(data, ensure_ascii=False)
