from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.events.models import Stream
from orchestrator.projects.access import Actor, require
from orchestrator.projects.models import Role


def stream_for_view(actor: Actor, stream_id: int) -> Stream:
    """Http404 for a stranger and for an unknown stream."""
    stream = get_object_or_404(Stream, pk=stream_id)
    require(actor, stream.project_id, Role.VIEWER)
    return stream
