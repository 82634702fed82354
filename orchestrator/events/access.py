from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.events.models import Stream
from orchestrator.projects.access import Actor, require
from orchestrator.projects.models import Role

FOR_EDITORS = frozenset({"tryout"})
"""Kinds of streams that hold what an environment says to people alone: it may solve a task."""


def stream_for_view(actor: Actor, stream_id: int) -> Stream:
    """Http404 for a stranger and for an unknown stream; PermissionDenied for who may not see it."""
    stream = get_object_or_404(Stream, pk=stream_id)
    needed = Role.EDITOR if stream.kind in FOR_EDITORS else Role.VIEWER
    require(actor, stream.project_id, needed)
    return stream
