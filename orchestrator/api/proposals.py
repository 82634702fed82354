"""Proposals that are handed in: take the question, give the answer."""

from __future__ import annotations

import json
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from optimizer.models import Proposal
from orchestrator.api.base import Endpoint
from orchestrator.projects.models import User
from orchestrator.proposing.access import handed_in_for_edit, handed_in_for_view
from orchestrator.proposing.handing import answer, handed_out


class HandedIn(Endpoint):
    """The proposal of a search's round that waits for a person or an agent."""

    area = "searches"

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, search_id: int, round: int) -> Response:
        """The question with its form and its traces; editors and viewers."""
        proposal = handed_in_for_view(request.user, search_id, round)
        return Response({**handed_out(proposal), **_outcome(proposal)})

    @extend_schema(request=OpenApiTypes.OBJECT, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, search_id: int, round: int) -> Response:
        """The answer, as the object that the question asks for, or as a reply in `text`."""
        proposal = handed_in_for_edit(request.user, search_id, round)
        assert isinstance(request.user, User), "nobody else passed the line above"
        answered = answer(actor=request.user, proposal=proposal, text=_text(request.data))
        return Response({"proposal": answered.pk, "round": answered.round, **_outcome(answered)})


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
