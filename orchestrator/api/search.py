"""Full-text search over the events of a project."""

from __future__ import annotations

from typing import Annotated, TypedDict

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.base import Endpoint, operation, page_url
from orchestrator.events.search import search_events
from orchestrator.projects.access import project_for_view
from orchestrator.runs.queries import rollouts_by_stream

MOST = 200
"""Events in one answer."""


class EventHit(TypedDict):
    rollout: Annotated[int | None, "Null for an event of something else."]
    seq: int
    html_url: Annotated[str | None, "The event on its rollout's page."]


class EventHitsAnswer(TypedDict):
    events: list[EventHit]
    has_more: Annotated[bool, f"Whether more than {MOST} match."]
    html_url: str


class EventSearch(Endpoint):
    """Events whose words match."""

    area = "traces"

    @operation(EventHitsAnswer, parameters=[OpenApiParameter("q", str, required=True)])
    def get(self, request: Request, project_id: int) -> Response:
        """The newest 200 with all words of `q`; `"two words"` is a phrase, `be*` a beginning."""
        project_for_view(request.user, project_id)
        query = request.query_params.get("q", "").strip()
        if not query:
            raise ValidationError({"q": ["names the words to look for"]})
        hits = search_events(project_id, query, limit=MOST + 1)
        rollouts = rollouts_by_stream(hit.stream_id for hit in hits)
        found: list[EventHit] = []
        for hit in hits[:MOST]:
            rollout = rollouts.get(hit.stream_id)
            page = None
            if rollout is not None:
                page = f"{page_url(request, 'rollout', project_id, rollout)}#e{hit.seq}"
            found.append({"rollout": rollout, "seq": hit.seq, "html_url": page})
        answer: EventHitsAnswer = {
            "events": found,
            "has_more": len(hits) > MOST,
            "html_url": page_url(request, "event_search", project_id),
        }
        return Response(answer)
